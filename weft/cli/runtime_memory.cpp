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
  const bool is_offloaded = !plan.offload.is_empty();
  for (const MemorySplit& rank : *ranks) {
    const double snapshot = trains && !is_offloaded ? as_double(snapshot_bytes(plan, std::ssize(needs))) : 0;
    needs.push_back({.states_bytes = rank.weights + rank.optimizer + (trains ? rank.gradients : 0),
                     .step_bytes = rank.workspace + (trains ? rank.activations + rank.buffers : 0),
                     .snapshot_bytes = snapshot});
  }
  return needs;
}

}  // namespace weft
