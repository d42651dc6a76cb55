#include "weft/cost/zero_exposure.h"

#include <algorithm>

namespace weft {

double ZeroExposure::exposed(double communication_ms, double compute_ms) const {
  return std::max(0.0, communication_ms - overlap_ * compute_ms);
}

void ZeroExposure::add(const ZeroTraffic& traffic, double forward_ms, double backward_ms, bool has_backward,
                       int64_t count) {
  if (count <= 0) return;
  const auto others = static_cast<double>(count - 1);
  forward_ms_ += exposed(traffic.gather_ms, previous_forward_ms_) + others * exposed(traffic.gather_ms, forward_ms);
  previous_forward_ms_ = forward_ms;
  if (!has_backward) return;
  add_backward(traffic, backward_ms);
  if (count == 1) return;
  add_backward(traffic, backward_ms);
  backward_ms_ += (others - 1) * exposed(traffic.backward_gather_ms + traffic.scatter_ms, backward_ms);
}

void ZeroExposure::add_backward(const ZeroTraffic& traffic, double backward_ms) {
  if (has_backward_) {
    backward_ms_ += exposed(gather_before_last_ms_ + traffic.scatter_ms, last_backward_ms_);
  } else {
    backward_ms_ += traffic.scatter_ms;
  }
  gather_before_last_ms_ = has_backward_ ? last_gather_ms_ : 0;
  has_backward_ = true;
  last_gather_ms_ = traffic.backward_gather_ms;
  last_backward_ms_ = backward_ms;
}

double ZeroExposure::backward_ms() const {
  return backward_ms_ + exposed(gather_before_last_ms_, last_backward_ms_) + last_gather_ms_;
}

}  // namespace weft
