#include <cstring>
#include <limits>

#include <gtest/gtest.h>

#include "tests/support/source_tree.h"
#include "weft/base/file.h"
#include "weft/prepare/decode_image.h"
#include "weft/prepare/waveform.h"

namespace weft::decode_test {
namespace {

std::string media_bytes(const std::string& name) {
  return *read_file(source_tree() / "tests/parity/media" / name, 1 << 20);
}

std::span<const uint8_t> as_span(const std::string& text) {
  return {reinterpret_cast<const uint8_t*>(text.data()), text.size()};
}

TEST(DecodeImage, AFileThatEndsEarlyIsAnError) {
  for (const char* name : {"plain.jpg", "progressive.jpg", "grey.jpg", "ink.jpg", "plain.png", "palette.png",
                           "deep_grey.png", "lossy.webp", "lossless.webp"}) {
    const std::string text = media_bytes(name);
    ASSERT_TRUE(decode_image(as_span(text), name).ok());
    // The last bytes of a PNG are a checksum and an empty chunk, those of a JPEG a marker: all of them are asked for.
    for (size_t length = 0; length + 3 < text.size(); length += 1 + length / 50) {
      const auto picture = decode_image(as_span(text.substr(0, length)), name);
      ASSERT_FALSE(picture.ok()) << name << " " << length << " of " << text.size();
      EXPECT_EQ(picture.error().source, name);
    }
  }
}

TEST(DecodeImage, AHeaderThatPromisesMoreThanTheFileHoldsIsRefusedBeforeMemoryIsTaken) {
  std::string text = media_bytes("plain.png");
  // Width and height of 12,000 each: within the limit, but not in so few bytes.
  for (const size_t at : {16, 20}) std::memcpy(text.data() + at, "\x00\x00\x2E\xE0", 4);
  const auto picture = decode_image(as_span(text), "bomb.png");
  ASSERT_FALSE(picture.ok());
  EXPECT_NE(picture.error().problem.find("promises 12000 by 12000 pixels"), std::string::npos)
      << picture.error().problem;
}

TEST(DecodeImage, DamageIsToldInOneLine) {
  std::string text = media_bytes("plain.png");
  text[text.size() / 2] = static_cast<char>(text[text.size() / 2] ^ 0x55);
  const auto picture = decode_image(as_span(text), "damaged.png");
  ASSERT_FALSE(picture.ok());
  EXPECT_EQ(picture.error().message().find('\n'), std::string::npos);
  EXPECT_TRUE(picture.error().problem.starts_with("is a damaged PNG image: ")) << picture.error().problem;
}

TEST(DecodeAudio, AFileThatEndsEarlyIsAnError) {
  for (const char* name : {"plain.wav", "stereo.flac"}) {
    const std::string text = media_bytes(name);
    for (size_t length = 0; length + 2 < text.size(); length += 1 + length / 20) {
      EXPECT_FALSE(decode_audio(as_span(text.substr(0, length)), name).ok()) << name << " " << length;
    }
  }
}

TEST(DecodeAudio, ValuesThatAreNoNumbersAreAnError) {
  std::string text = media_bytes("float.wav");
  const float bad = std::numeric_limits<float>::quiet_NaN();
  std::memcpy(text.data() + text.size() - 400, &bad, sizeof bad);
  const auto sound = decode_audio(as_span(text), "float.wav");
  ASSERT_FALSE(sound.ok());
  EXPECT_EQ(sound.error().problem, "holds values that are no sound: not numbers, or above a million");
}

TEST(Resampled, KeepsATone) {
  Waveform tone{.rate_hz = 48'000};
  for (int i = 0; i < 48'000; ++i)
    tone.samples.push_back(static_cast<float>(std::sin(2 * 3.14159265358979 * 440 * i / 48'000)));
  const Waveform slow = resampled(tone, 16'000);
  ASSERT_EQ(slow.samples.size(), 16'000u);
  for (size_t i = 1000; i < 15'000; ++i) ASSERT_NEAR(slow.samples[i], tone.samples[3 * i], 1e-3) << i;
}

}  // namespace
}  // namespace weft::decode_test
