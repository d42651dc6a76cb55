#include "weft/probe/audio_info.h"

#include <algorithm>
#include <cctype>

#include <fmt/format.h>

#include "weft/base/text.h"
#include "weft/probe/audio_headers.h"

namespace weft {
namespace {

constexpr int64_t kMostChannels = 64;
constexpr int64_t kLowestRateHz = 1'000, kHighestRateHz = 768'000;

std::string_view known_sound(HeaderBytes& bytes) {
  if (bytes.size() == 0) return "is empty";
  if (bytes.has(0, "ID3") || (bytes.at(0) == 0xFF && (bytes.at(1) & 0xE0) == 0xE0)) return "is an MP3 or AAC file";
  if (bytes.has(0, "FORM")) return "is an AIFF file";
  if (bytes.has(0, "RF64") || bytes.has(0, "RIFX")) return "is a WAV file of a rare form";
  if (bytes.has(4, "ftyp")) return "is an MP4 file";
  if (bytes.has(0, "version https://git-lfs")) return "is a Git LFS pointer, whose file was not fetched";
  return "is no sound that is known";
}

Error refuse_sound(std::string_view source, std::string problem, std::string advice) {
  return {.source = std::string(source), .problem = std::move(problem), .advice = std::move(advice)};
}

std::optional<Error> find_bad_clip(const AudioInfo& clip, std::string_view source, const MediaLimits& limits) {
  if (clip.channels < 1 || clip.channels > kMostChannels || clip.rate_hz < kLowestRateHz ||
      clip.rate_hz > kHighestRateHz) {
    return refuse_sound(
        source,
        fmt::format("has {} channels at {} Hz; 1 to {} at {} to {} Hz are read", clip.channels, clip.rate_hz,
                    kMostChannels, with_commas(kLowestRateHz), with_commas(kHighestRateHz)),
        "Save it again at 16,000 Hz.");
  }
  if (clip.frames < 1) return refuse_sound(source, "has no sound in it", "Leave it out.");
  if (clip.seconds() > limits.max_seconds) {
    return refuse_sound(source,
                        fmt::format("is {:g} seconds long, more than the {:g} that a clip may have", clip.seconds(),
                                    limits.max_seconds),
                        "Cut it into parts.");
  }
  return std::nullopt;
}

}  // namespace

Result<AudioInfo> probe_audio(HeaderBytes& bytes, std::string_view source, const MediaLimits& limits) {
  if (bytes.size() > limits.max_file_bytes) {
    return refuse_sound(source,
                        fmt::format("has {} bytes, more than the {} that a media file may have",
                                    with_commas(bytes.size()), with_commas(limits.max_file_bytes)),
                        "Check that this is the file you meant.");
  }
  AudioFinding found;
  if (bytes.has(0, "RIFF") && bytes.has(8, "WAVE")) {
    found = read_wav_header(bytes);
  } else if (bytes.has(0, "fLaC")) {
    found = read_flac_header(bytes);
  } else if (bytes.has(0, "OggS")) {
    found = read_ogg_header(bytes);
  } else {
    return refuse_sound(source, fmt::format("{}; WAV, FLAC and Ogg files are read", known_sound(bytes)),
                        "Convert it to FLAC, or correct the path.");
  }
  if (!found.problem.empty()) {
    if (found.advice.empty()) found.advice = "Copy or download it again.";
    return refuse_sound(source, std::move(found.problem), std::move(found.advice));
  }
  if (auto error = find_bad_clip(found.clip, source, limits)) return *std::move(error);
  return found.clip;
}

Result<AudioInfo> probe_audio(const std::filesystem::path& path, const MediaLimits& limits) {
  WEFT_TRY(HeaderBytes bytes, HeaderBytes::open(path));
  return probe_audio(bytes, path.string(), limits);
}

int64_t resampled_frames(int64_t frames, int64_t rate_hz, int64_t new_rate_hz) {
  return (frames * new_rate_hz + rate_hz - 1) / rate_hz;
}

std::string to_string(AudioKind kind) {
  switch (kind) {
    case AudioKind::kWav:
      return "WAV";
    case AudioKind::kFlac:
      return "FLAC";
    case AudioKind::kVorbis:
      return "Ogg Vorbis";
    case AudioKind::kOpus:
      return "Ogg Opus";
  }
  return "";
}

std::string wrong_extension(const std::filesystem::path& path, AudioKind kind) {
  std::string extension = path.extension().string();
  std::transform(extension.begin(), extension.end(), extension.begin(),
                 [](unsigned char c) { return std::tolower(c); });
  const bool is_ogg = kind == AudioKind::kVorbis || kind == AudioKind::kOpus;
  const bool names_ogg = extension == ".ogg" || extension == ".oga" || extension == ".opus";
  const bool agrees = (extension == ".wav" && kind == AudioKind::kWav) ||
                      (extension == ".flac" && kind == AudioKind::kFlac) || (names_ogg && is_ogg);
  const bool says_something = extension == ".wav" || extension == ".flac" || names_ogg || extension == ".mp3" ||
                              extension == ".jpg" || extension == ".png";
  if (agrees || !says_something) return "";
  return fmt::format("is a {} file although its name ends in {}", to_string(kind), extension);
}

}  // namespace weft
