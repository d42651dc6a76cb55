#pragma once

#include <span>
#include <vector>

#include "weft/search/schedule_graph.h"

namespace weft {

/// How often a mix of paths through a schedule meets each work of each stage: shares of paths that add up to one. Every
/// path bounds the makespan, so their mix does too; one that meets all stages about equally often bounds every
/// placement well, because no stage is left to hide work on.
using PathMix = std::vector<StageTimes>;

/// The schedule's plainest paths. For each stage: down to it with the first microbatch, through all that its rank does
/// from there to the stage's last gradient, and back up; then the step's end on the first stage, where there is one.
std::vector<CriticalPath> plain_paths(const Schedule& schedule);

/// Paths in equal shares.
PathMix mix_of(std::span<const CriticalPath> paths);

/// The plainest paths in equal shares, without making them one by one.
PathMix plain_mix(const Schedule& schedule);

/// Work that can be put on any stage: so many milliseconds a microbatch, of which F, I and W have shares.
struct FreeWork {
  double ms = 0;
  StageTimes shares{};
};

/// The least makespan of any placement of the work, as far as the mix and the ranks' own loads can tell. `every_stage`
/// is what each stage has besides: the host's time around actions, transfers.
double least_makespan_ms(const Schedule& schedule, const PathMix& mix, std::span<const FreeWork> works,
                         const StageTimes& every_stage);

/// A mix, and the least makespan that it shows.
struct MixBound {
  double ms = 0;
  PathMix mix;
};
/// The best mix of a given one with the longest path of evenly loaded stages, which sees what transfers hold up.
MixBound best_mix(const Schedule& schedule, ScheduleGraph& graph, const PathMix& mix, std::span<const FreeWork> works,
                  const StageTimes& every_stage);

}  // namespace weft
