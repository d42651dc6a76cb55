#include <soxr.h>

#include "weft/base/check.h"
#include "weft/prepare/waveform.h"

namespace weft {

Waveform resampled(Waveform sound, int64_t rate_hz) {
  if (sound.rate_hz == rate_hz || sound.samples.empty()) {
    sound.rate_hz = rate_hz;
    return sound;
  }
  Waveform to{.rate_hz = rate_hz};
  to.samples.resize(static_cast<size_t>(resampled_frames(std::ssize(sound.samples), sound.rate_hz, rate_hz)));
  const soxr_quality_spec_t quality = soxr_quality_spec(SOXR_HQ, 0);
  size_t used = 0, made = 0;
  // What it does not fill, at most a sample or two, stays silent.
  const soxr_error_t error = soxr_oneshot(static_cast<double>(sound.rate_hz), static_cast<double>(rate_hz), 1,
                                          sound.samples.data(), sound.samples.size(), &used, to.samples.data(),
                                          to.samples.size(), &made, nullptr, &quality, nullptr);
  WEFT_CHECK(!error, "resampling {} Hz to {} Hz: {}", sound.rate_hz, rate_hz, soxr_strerror(error));
  return to;
}

}  // namespace weft
