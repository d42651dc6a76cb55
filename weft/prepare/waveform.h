#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string_view>
#include <vector>

#include "weft/base/result.h"
#include "weft/probe/audio_info.h"

namespace weft {

/// Sound of one channel.
struct Waveform {
  int64_t rate_hz = 0;
  std::vector<float> samples;
};

/// The sound in a WAV, FLAC or Ogg file, its channels averaged. A file that has another length than its header says is
/// an error, as is one over the limits.
Result<Waveform> decode_audio(std::span<const uint8_t> file, std::string_view source, const MediaLimits& limits = {});
Result<Waveform> read_audio(const std::filesystem::path& path, const MediaLimits& limits = {});

/// The same sound at another rate (soxr's high quality, as librosa's default), resampled_frames() long.
Waveform resampled(Waveform sound, int64_t rate_hz);

}  // namespace weft
