#include "weft/schedule/encoder_clock.h"

#include <algorithm>

namespace weft {

EncoderClock::EncoderClock(const ScheduledEncoder& encoder, int32_t num_ranks, double bridge)
    : encoder_(&encoder),
      bridge_(bridge),
      group_of_rank_(groups_of_ranks(encoder, num_ranks)),
      forwards_(encoder.groups.size(), 0),
      backwards_(encoder.groups.size(), 0),
      peak_kept_(encoder.groups.size(), 0),
      forward_ends_(encoder.num_groups(), encoder.num_macro_batches, kNever),
      forward_arrivals_(forward_ends_),
      backward_arrivals_(forward_ends_),
      encoded_(static_cast<size_t>(encoder.num_macro_batches),
               Parts{.missing = encoder.num_groups() / encoder.num_stages}),
      gradients_(encoded_.size()),
      unread_(encoded_.size(), 0) {
  for (size_t m = 0; m < encoder.first_macro.size(); ++m) {
    for (int32_t k = encoder.first_macro[m]; k < encoder.end_macro[m]; ++k) {
      ++unread_[static_cast<size_t>(k)];
      ++gradients_[static_cast<size_t>(k)].missing;
    }
  }
}

double EncoderClock::forward_ready(int32_t group, int32_t macro) const {
  const double input = encoder_->is_first_stage(group) ? 0 : forward_arrivals_.at(group - 1, macro);
  const int32_t over = forwards_[static_cast<size_t>(group)] - encoder_->live_macro_batches;
  if (encoder_->live_macro_batches == 0 || over < 0) return input;
  if (encoder_->keeps_activations()) return over < backwards_[static_cast<size_t>(group)] ? input : kNever;
  return static_cast<size_t>(over) < released_.size() ? std::max(input, released_[static_cast<size_t>(over)]) : kNever;
}

double EncoderClock::backward_ready(int32_t group, int32_t macro) const {
  if (encoder_->is_last_stage(group)) return gradients_[static_cast<size_t>(macro)].ready() + bridge_;
  return backward_arrivals_.at(group + 1, macro);
}

double EncoderClock::microbatch_ready(int32_t microbatch) const {
  double ready = 0;
  const auto m = static_cast<size_t>(microbatch);
  for (int32_t k = encoder_->first_macro[m]; k < encoder_->end_macro[m]; ++k) {
    ready = std::max(ready, encoded_[static_cast<size_t>(k)].ready() + bridge_);
  }
  return ready;
}

void EncoderClock::forward_ended(int32_t group, int32_t macro, double end, double arrival) {
  const auto g = static_cast<size_t>(group);
  forward_ends_.at(group, macro) = end;
  forward_arrivals_.at(group, macro) = arrival;
  peak_kept_[g] = std::max(peak_kept_[g], ++forwards_[g] - backwards_[g]);
  if (!encoder_->is_last_stage(group)) return;
  Parts& encoded = encoded_[static_cast<size_t>(macro)];
  --encoded.missing;
  encoded.last = std::max(encoded.last, end);
}

void EncoderClock::backward_ended(int32_t group, int32_t macro, double arrival) {
  ++backwards_[static_cast<size_t>(group)];
  backward_arrivals_.at(group, macro) = arrival;
}

void EncoderClock::microbatch_read(int32_t microbatch, double end) {
  const auto m = static_cast<size_t>(microbatch);
  for (int32_t k = encoder_->first_macro[m]; k < encoder_->end_macro[m]; ++k) {
    if (--unread_[static_cast<size_t>(k)] == 0) released_.push_back(end);
  }
}

void EncoderClock::microbatch_gradient(int32_t microbatch, double end) {
  const auto m = static_cast<size_t>(microbatch);
  for (int32_t k = encoder_->first_macro[m]; k < encoder_->end_macro[m]; ++k) {
    Parts& gradient = gradients_[static_cast<size_t>(k)];
    --gradient.missing;
    gradient.last = std::max(gradient.last, end);
  }
}

int32_t EncoderClock::peak_live() const {
  if (encoder_->keeps_activations())
    return peak_kept_.empty() ? 0 : *std::max_element(peak_kept_.begin(), peak_kept_.end());
  int32_t peak = 0;
  for (int32_t g = 0; g < encoder_->num_groups(); ++g) {
    const auto of_group = forward_ends_.of_stage(g);
    std::vector<double> ends(of_group.begin(), of_group.end());
    std::sort(ends.begin(), ends.end());
    for (size_t n = 0; n < ends.size(); ++n) {
      const auto released = std::upper_bound(released_.begin(), released_.end(), ends[n]) - released_.begin();
      peak = std::max(peak, static_cast<int32_t>(n + 1) - static_cast<int32_t>(released));
    }
  }
  return peak;
}

}  // namespace weft
