#include <algorithm>
#include <cmath>
#include <memory>
#include <sndfile.h>

#include <fmt/format.h>

#include "weft/base/file.h"
#include "weft/base/text.h"
#include "weft/prepare/codecs/sound_bytes.h"
#include "weft/prepare/waveform.h"

namespace weft {
namespace {

struct SoundCloser {
  void operator()(SNDFILE* file) const { sf_close(file); }
};

}  // namespace

Result<Waveform> decode_audio(std::span<const uint8_t> file, std::string_view source, const MediaLimits& limits) {
  HeaderBytes header = HeaderBytes::of(file);
  WEFT_TRY(const AudioInfo clip, probe_audio(header, source, limits));
  const auto refuse = [&](std::string problem) {
    return Error{.source = std::string(source), .problem = std::move(problem), .advice = "Copy or download it again."};
  };
  SoundBytes bytes{.bytes = file};
  SF_VIRTUAL_IO calls{.get_filelen = &SoundBytes::size,
                      .seek = &SoundBytes::seek,
                      .read = &SoundBytes::read,
                      .write = &SoundBytes::write,
                      .tell = &SoundBytes::tell};
  SF_INFO info{};
  const std::unique_ptr<SNDFILE, SoundCloser> sound(sf_open_virtual(&calls, SFM_READ, &info, &bytes));
  if (!sound)
    return refuse(fmt::format("is a damaged {} file: {}", to_string(clip.kind), printable(sf_strerror(nullptr))));
  if (info.channels != clip.channels || info.samplerate != clip.rate_hz) {
    return refuse(fmt::format("is a {} file with two headers: {} channels at {} Hz, and {} at {} Hz",
                              to_string(clip.kind), clip.channels, clip.rate_hz, info.channels, info.samplerate));
  }
  Waveform wave{.rate_hz = clip.rate_hz};
  constexpr int64_t kPiece = 4096, kReserved = int64_t{1} << 24;
  wave.samples.reserve(static_cast<size_t>(std::min(clip.frames, kReserved)));
  std::vector<float> piece(static_cast<size_t>(kPiece * clip.channels));
  const auto num_channels = static_cast<float>(clip.channels);
  while (std::ssize(wave.samples) <= clip.frames) {
    const sf_count_t got = sf_readf_float(sound.get(), piece.data(), kPiece);
    if (got <= 0) break;
    for (sf_count_t i = 0; i < got; ++i) {
      const float* frame = piece.data() + i * clip.channels;
      float sum = frame[0];
      for (int64_t c = 1; c < clip.channels; ++c) sum += frame[c];
      wave.samples.push_back(sum / num_channels);
    }
  }
  if (std::ssize(wave.samples) != clip.frames) {
    return refuse(fmt::format("has {} frames of sound where its header says {}",
                              std::ssize(wave.samples) > clip.frames ? "more" : std::to_string(wave.samples.size()),
                              with_commas(clip.frames)));
  }
  constexpr float kLoudest = 1e6F;
  const bool is_sound =
      std::all_of(wave.samples.begin(), wave.samples.end(), [](float x) { return std::abs(x) <= kLoudest; });
  if (!is_sound) return refuse("holds values that are no sound: not numbers, or above a million");
  return wave;
}

Result<Waveform> read_audio(const std::filesystem::path& path, const MediaLimits& limits) {
  WEFT_TRY(const std::string bytes, read_file(path, static_cast<size_t>(limits.max_file_bytes)));
  return decode_audio({reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()}, path.string(), limits);
}

}  // namespace weft
