#pragma once

#include <map>
#include <tuple>

#include "weft/search/place_pipeline.h"
#include "weft/search/placed_beside.h"
#include "weft/search/room_mix.h"
#include "weft/search/workbench.h"

namespace weft {

/// What no placement of a candidate's pipeline is faster than, and what its stages take.
/// Candidates of a frame with the same schedule, ZeRO stage and inline encoders share both; this belongs to one frame.
class ScheduleBounds {
 public:
  /// As a mix of the schedule's paths shows.
  double mixed_ms(Workbench& bench, const Candidate& c);

  /// As the same mix shows with the memory that encoders leave: `fluid` is the pipeline's relaxation. With
  /// `hides_reductions`, something behind the pipeline hides the reduction of gradients.
  double room_ms(Workbench& bench, const Candidate& c, const FluidChain& fluid, const BesideGib& beside,
                 bool hides_reductions);

  /// As the exact solver shows with all of the devices' memory, or, with several chunks a rank, as their rule does
  /// without a limit; infinite where nothing fits. The bench is filled with the candidate.
  double placed_ms(Workbench& bench, const Candidate& c, bool hides_reductions, const PlaceLimits& limits);

  /// With several chunks a rank: what each rank's blocks take in a step without recomputation, for every way that the
  /// rule spreads them. The bench is filled with the candidate.
  const std::vector<std::vector<double>>& chunk_loads_ms(Workbench& bench, const Candidate& c);

  StagePrices& prices_of(const Workbench& bench, const Candidate& c) { return prices_[pipeline_of(bench, c)]; }

  /// What placements of the candidate's pipeline have shown so far.
  PlacedBeside& placed_beside(const Workbench& bench, const Candidate& c) { return beside_[pipeline_of(bench, c)]; }

 private:
  /// What tells the pipelines of a frame's candidates apart.
  struct Pipeline {
    EncoderSet inside;
    ScheduleName schedule;
    int64_t vpp;
    int64_t zero;
    bool keeps_gathered;
    bool recomputes_logits;
    auto operator<=>(const Pipeline&) const = default;  // NOLINT(modernize-use-nullptr)
  };
  static Pipeline pipeline_of(const Workbench& bench, const Candidate& c);

  const MixBound& mixed(Workbench& bench, const Candidate& c);

  std::map<Pipeline, MixBound> mixed_;
  std::map<std::pair<Pipeline, bool>, RoomMix> rooms_;
  std::map<std::tuple<Pipeline, bool, BesideGib>, double> room_ms_;
  std::map<Pipeline, StagePrices> prices_;
  std::map<std::pair<Pipeline, bool>, double> placed_;
  std::map<Pipeline, PlacedBeside> beside_;
  std::map<Pipeline, std::vector<std::vector<double>>> chunk_loads_;
};

}  // namespace weft
