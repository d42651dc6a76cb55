#include "weft/probe/audio_info.h"

#include <gtest/gtest.h>

#include "tests/support/source_tree.h"
#include "weft/base/file.h"

namespace weft::audio_info_test {
namespace {

std::filesystem::path media_file(const std::string& name) {
  return source_tree() / "tests/parity/media" / name;
}

Result<AudioInfo> probe_text(const std::string& text, const MediaLimits& limits = {}) {
  HeaderBytes bytes = HeaderBytes::of({reinterpret_cast<const uint8_t*>(text.data()), text.size()});
  return probe_audio(bytes, "clip", limits);
}

TEST(AudioInfo, AFileReadInPartsIsTheSameAsOneInMemory) {
  int num_files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(source_tree() / "tests/parity/media")) {
    const std::string extension = entry.path().extension();
    if (extension != ".wav" && extension != ".flac" && extension != ".ogg") continue;
    const Result<AudioInfo> in_parts = probe_audio(entry.path());
    ASSERT_TRUE(in_parts.ok()) << entry.path();
    EXPECT_EQ(*in_parts, *probe_text(*read_file(entry.path(), 1 << 20))) << entry.path();
    EXPECT_EQ(wrong_extension(entry.path(), in_parts->kind), "") << entry.path();
    ++num_files;
  }
  EXPECT_GE(num_files, 10);
}

TEST(AudioInfo, AHeaderThatIsCutOffIsAnError) {
  for (const char* name : {"plain.wav", "extensible.wav", "plain.flac", "vorbis.ogg", "opus.ogg"}) {
    const std::string text = *read_file(media_file(name), 1 << 20);
    for (size_t length = 0; length < 26; ++length)
      EXPECT_FALSE(probe_text(text.substr(0, length)).ok()) << name << length;
  }
  const std::string wav = *read_file(media_file("plain.wav"), 1 << 20);
  EXPECT_EQ(probe_text(wav.substr(0, wav.size() - 10)).error().problem, "ends 10 bytes before its sound does");
}

TEST(AudioInfo, LimitsAndOtherFilesAreNamed) {
  const std::string wav = *read_file(media_file("plain.wav"), 1 << 20);
  EXPECT_EQ(probe_text(wav, {.max_seconds = 0.1}).error().problem,
            "is 0.187562 seconds long, more than the 0.1 that a clip may have");
  EXPECT_EQ(probe_text("ID3.....").error().problem, "is an MP3 or AAC file; WAV, FLAC and Ogg files are read");
  EXPECT_EQ(probe_text("").error().problem, "is empty; WAV, FLAC and Ogg files are read");
  EXPECT_EQ(wrong_extension("a.wav", AudioKind::kFlac), "is a FLAC file although its name ends in .wav");
  EXPECT_EQ(wrong_extension("a.opus", AudioKind::kOpus), "");
}

TEST(AudioInfo, AnotherRateRoundsUp) {
  EXPECT_EQ(resampled_frames(3001, 44'100, 16'000), 1089);
  EXPECT_EQ(resampled_frames(3, 48'000, 16'000), 1);
  EXPECT_EQ(resampled_frames(4, 48'000, 16'000), 2);
  EXPECT_EQ(resampled_frames(7, 16'000, 16'000), 7);
}

}  // namespace
}  // namespace weft::audio_info_test
