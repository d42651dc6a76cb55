#include "weft/cli/runtime_memory.h"

#include "weft/simulate/rank_memory.h"

namespace weft {

std::vector<RankNeed> predicted_needs(const Plan& plan, NeededFor what) {
  const Result<std::vector<MemorySplit>> ranks = memory_of_ranks(plan);
  std::vector<RankNeed> needs;
  if (!ranks) return needs;
  for (const MemorySplit& rank : *ranks) {
    const bool trains = what == NeededFor::kTraining;
    needs.push_back({.states_bytes = rank.weights + rank.optimizer + (trains ? rank.gradients : 0),
                     .step_bytes = rank.workspace + (trains ? rank.activations + rank.buffers : 0)});
  }
  return needs;
}

}  // namespace weft
