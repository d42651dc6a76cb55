// What takes the place of codecs/ in a build that found no libraries for pictures and sound.
#include "weft/base/check.h"
#include "weft/prepare/image_codecs.h"
#include "weft/prepare/waveform.h"

namespace weft {
namespace {

constexpr char kProblem[] = "cannot be decoded: this build has no libraries for pictures and sound";
constexpr char kAdvice[] = "Run scripts/setup, which installs them, and build again in an empty build folder.";

}  // namespace

std::string decode_jpeg(std::span<const uint8_t>, Pixels&) {
  return kProblem;
}

std::string decode_png(std::span<const uint8_t>, Pixels&) {
  return kProblem;
}

std::string decode_webp(std::span<const uint8_t>, Pixels&) {
  return kProblem;
}

Result<Waveform> decode_audio(std::span<const uint8_t>, std::string_view source, const MediaLimits&) {
  return Error{.source = std::string(source), .problem = kProblem, .advice = kAdvice};
}

Result<Waveform> read_audio(const std::filesystem::path& path, const MediaLimits& limits) {
  return decode_audio({}, path.string(), limits);
}

Waveform resampled(Waveform sound, int64_t rate_hz) {
  WEFT_CHECK(sound.rate_hz == rate_hz, "sound that cannot be decoded is at {} Hz", sound.rate_hz);
  return sound;
}

}  // namespace weft
