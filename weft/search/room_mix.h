#pragma once

#include <span>
#include <vector>

#include "weft/search/fluid_bound.h"
#include "weft/search/path_mix.h"

namespace weft {

/// What stages do at least, by works: of a microbatch, and once a step.
struct LayeredWork {
  StageTimes layer{};              ///< every layer adds this to its stage
  StageTimes first{};              ///< the first stage has besides: below 0 where it hides what its layers leave
  StageTimes last{};               ///< the same of the last
  std::vector<StageTimes> others;  ///< each lies on any stage, or in parts on several

  /// Something hides them.
  void ignore_reductions();
};

/// A schedule's idle time and its ranks' memory together. A mix of paths (path_mix.h) says what a layer costs on each
/// rank, the rank's memory how many it takes before they must be recomputed, and that costs more where paths meet the
/// rank often. Layers lie where they are cheapest; no placement is faster.
class RoomMix {
 public:
  /// `chain` is the same pipeline, `in_flight` as for FluidRanks. Copies what it needs.
  RoomMix(const Schedule& schedule, const PathMix& mix, const LayeredWork& work, const StageTimes& every_stage,
          const FluidChain& chain, std::span<const double> in_flight);

  /// With encoders beside the pipeline; infinite where its layers fit in no way.
  double least_makespan_ms(const BesideGib& beside) const;

 private:
  /// What one more layer adds to the mix, on each rank.
  struct RankPrice {
    double layer_ms = 0;
    double input_ms = 0;  ///< of a millisecond of recomputation
  };

  FluidChain chain_;
  std::vector<double> in_flight_;
  std::vector<RankPrice> prices_;
  double fixed_ms_ = 0;  ///< of the mix, wherever layers lie
  double host_ms_ = 0;   ///< of a rank, around one microbatch's actions
};

}  // namespace weft
