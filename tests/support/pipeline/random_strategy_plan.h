#pragma once

#include <map>

#include "tests/support/meaning/random_plan.h"
#include "tests/support/pipeline/example_training.h"
#include "tests/support/program/random_strategy.h"

namespace weft {

/// A plan of any form, with any strategies for layers of its modules that their rules allow, of some of them where
/// there are several; the next seed from `seed` on with which tensor parallelism divides the llm's or an encoder's.
inline Plan random_strategy_plan(const Model& model, uint64_t& seed) {
  for (;; ++seed) {
    Plan plan = random_plan(model, seed, {.world_size = seed % 4 == 0 ? 6 : 8, .most_cp = 2});
    std::mt19937_64 random(seed);
    std::map<ModuleKind, BlockEntries> strategies;
    for (ModulePlan& module : plan.modules) {
      if (module.tp == 1 || (module.is_encoder() && random() % 4 == 0)) continue;
      // Layers of programs recompute all or nothing.
      for (auto& chunks : module.recompute) {
        for (Recompute& chunk : chunks) {
          if (chunk.count(BlockRecompute::kAttention) > 0) chunk = Recompute{};
        }
      }
      strategies[module.kind] = random_layer_strategy(*model.find(module.kind), module.tp, random,
                                                      /*has_whole_attention=*/module.cp > 1);
    }
    if (strategies.empty()) continue;
    return with_strategies(std::move(plan), std::move(strategies));
  }
}

/// Whether context-parallel ranks share out the rows of layers with a strategy.
inline bool shares_rows_of_strategies(const Plan& plan) {
  return std::any_of(plan.modules.begin(), plan.modules.end(),
                     [](const ModulePlan& module) { return module.cp > 1 && !module.strategy.is_empty(); });
}

/// The strategies of a plan's modules.
inline std::string strategies_text(const Plan& plan) {
  std::string text;
  for (const ModulePlan& module : plan.modules) {
    if (!module.strategy.is_empty())
      text += std::string(name_of(module.kind)) + " " + to_json(module.strategy).dump() + " ";
  }
  return text;
}

}  // namespace weft
