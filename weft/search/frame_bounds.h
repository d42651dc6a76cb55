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

  /// What the llm alone takes, with the schedule that leaves the least idle and with the ZeRO stage that needs the
  /// least of communication and recomputation; infinite where nothing fits.
  double llm_ms(const Candidate& degrees);

 private:
  double least_encoder_of(const Candidate& degrees, size_t encoder);

  Workbench& bench_;
  // By encoder, mbs, tp, whether pp > 1, and the ranks among which the encoder may spread rows.
  std::map<std::tuple<size_t, int64_t, int64_t, bool, int64_t>, double> least_;
};

}  // namespace weft
