#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

#include "weft/base/result.h"
#include "weft/probe/header_bytes.h"
#include "weft/probe/media_limits.h"

namespace weft {

enum class AudioKind { kWav, kFlac, kVorbis, kOpus };

/// What an audio file's header says. A frame is one value of every channel.
struct AudioInfo {
  AudioKind kind = AudioKind::kWav;
  int64_t rate_hz = 0;
  int64_t channels = 0;
  int64_t frames = 0;

  double seconds() const { return static_cast<double>(frames) / static_cast<double>(rate_hz); }
  bool operator==(const AudioInfo&) const = default;
};

/// Kind, rate, channels and length, by content and from the header alone (of Ogg, the last page too).
Result<AudioInfo> probe_audio(HeaderBytes& bytes, std::string_view source, const MediaLimits& limits = {});
Result<AudioInfo> probe_audio(const std::filesystem::path& path, const MediaLimits& limits = {});

/// Frames of a clip at another rate: rounded up, as librosa does.
int64_t resampled_frames(int64_t frames, int64_t rate_hz, int64_t new_rate_hz);

/// "WAV", "Ogg Vorbis".
std::string to_string(AudioKind kind);

/// "is a FLAC file although its name ends in .wav", or nothing.
std::string wrong_extension(const std::filesystem::path& path, AudioKind kind);

}  // namespace weft
