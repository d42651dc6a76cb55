#pragma once

#include <map>
#include <tuple>

#include "weft/search/workbench.h"

namespace weft {

/// What no candidate of a frame is faster than. A frame is its degrees: the candidates that share them are alike but
/// for schedule, ZeRO stage and encoders.
class FrameBounds {
 public:
  explicit FrameBounds(Workbench& bench) : bench_(bench) {}

  /// The work of llm and encoders, spread evenly.
  double work_ms(const Candidate& degrees);

  /// What the llm alone takes, with the schedule and the ZeRO stage that together leave the least of idle time,
  /// communication and recomputation; infinite where nothing fits. As good as it gets below the limit only.
  double llm_ms(const Candidate& degrees, double limit_ms);

  /// About what a rank holds with all layers recomputed and the ZeRO stage that divides most: no bound, but smaller
  /// where more fits.
  double least_held_gib(const Candidate& degrees);
  /// An estimate: what so much work of each rank takes with the idle time of 1F1B, which bounds by work do not see.
  double with_idle_ms(const Candidate& degrees, double work_ms) const;

 private:
  EncoderSet all_encoders() const { return (1u << bench_.num_encoders()) - 1; }
  double least_encoder_of(const Candidate& degrees, size_t encoder);

  Workbench& bench_;
  // By encoder, mbs, tp, whether pp > 1, and the ranks among which the encoder may spread rows.
  std::map<std::tuple<size_t, int64_t, int64_t, bool, int64_t>, double> least_;
};

}  // namespace weft
