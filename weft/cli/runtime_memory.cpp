#include "weft/cli/runtime_memory.h"

#include "weft/base/as_double.h"
#include "weft/meaning/held_state.h"
#include "weft/simulate/rank_memory.h"

namespace weft {

std::vector<RankNeed> predicted_needs(const Plan& plan, NeededFor what) {
  const Result<std::vector<MemorySplit>> ranks = memory_of_ranks(plan);
  std::vector<RankNeed> needs;
  if (!ranks) return needs;
  const bool trains = what == NeededFor::kTraining;
  std::vector<int64_t> snapshots(ranks->size(), 0);
  if (trains && plan.offload.is_empty()) snapshots = snapshot_bytes(plan);
  for (const MemorySplit& rank : *ranks) {
    needs.push_back({.states_bytes = rank.weights + rank.optimizer + (trains ? rank.gradients : 0),
                     .step_bytes = rank.workspace + (trains ? rank.activations + rank.buffers : 0),
                     .snapshot_bytes = as_double(snapshots[needs.size()])});
  }
  return needs;
}

}  // namespace weft
