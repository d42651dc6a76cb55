#pragma once

#include "tests/support/meaning/random_plan.h"
#include "tests/support/pipeline/example_training.h"
#include "tests/support/program/random_strategy.h"

namespace weft {

/// A plan of any form, with any strategy for the llm's layers that their rules allow; the next seed from `seed` on with
/// which tensor parallelism divides them.
inline Plan random_strategy_plan(const Model& model, uint64_t& seed) {
  for (;; ++seed) {
    Plan plan = random_plan(model, seed, {.world_size = seed % 4 == 0 ? 6 : 8, .allows_cp = false});
    if (plan.llm().tp == 1) continue;
    // Layers of programs recompute all or nothing.
    for (auto& chunks : plan.modules.back().recompute) {
      for (Recompute& chunk : chunks) {
        if (chunk.count(BlockRecompute::kAttention) > 0) chunk = Recompute{};
      }
    }
    std::mt19937_64 random(seed);
    return with_llm_strategy(plan, random_layer_strategy(model.modules.back(), plan.llm().tp, random));
  }
}

}  // namespace weft
