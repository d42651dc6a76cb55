#pragma once

#include "tests/support/pipeline/example_training.h"
#include "tests/support/pipeline/tiny_models.h"

namespace weft {

/// Plans of models with experts, in all forms that these have, for strategies of their layers.
inline std::vector<TrainingExample> expert_examples() {
  std::vector<TrainingExample> all;
  const auto add = [&](TrainingExample example) {
    example.fixture = kTinyExperts.fixture;
    example.sizes = kTinyExperts.sizes;
    example.sizes_name = kTinyExperts.name;
    example.epsilon = 1e-5;
    all.push_back(std::move(example));
  };
  add({.tp = 2, .dp = 2, .ep = 2, .mbs = 2});
  add({.tp = 4, .sequence_parallel = true, .balance_coefficient = 0.3});
  add({.tp = 4, .dp = 2, .ep = 2, .zero = 1, .has_short_sample = true});
  // Experts that are whole, on tensor-parallel ranks too.
  add({.tp = 2, .dp = 2, .ep = 4, .sequence_parallel = true, .experts_over_tp = true, .zero = 2});
  add({.tp = 4, .ep = 4, .sequence_parallel = true, .experts_over_tp = true, .balance_coefficient = 0.3});
  // With states divided, blocks that run again and backwards that are split.
  add({.tp = 2, .dp = 2, .ep = 2, .sequence_parallel = true, .zero = 3, .recompute = {.full = 1}});
  add({.tp = 2, .pp = 2, .dp = 2, .ep = 2, .zero = 1, .schedule = "zb_h1", .microbatches = 4});
  add({.tp = 2,
       .pp = 2,
       .dp = 2,
       .ep = 4,
       .sequence_parallel = true,
       .experts_over_tp = true,
       .schedule = "zb_h1",
       .microbatches = 4,
       .recompute = {.full = 1}});
  // Experts alone, routers alone, attention alone: no gradient comes to the first layer's program, or all do.
  const std::vector<TrainRule> experts = {{"*", false}, {"*.mlp.experts.*", true}};
  add({.tp = 2, .dp = 2, .ep = 2, .recompute = {.full = 1}, .trainable = experts});
  add({.tp = 2, .pp = 2, .ep = 1, .schedule = "zb_h1", .microbatches = 4, .trainable = experts});
  add({.tp = 2, .sequence_parallel = true, .trainable = {{"*", false}, {"*.mlp.gate.*", true}}});
  add({.tp = 2, .dp = 2, .ep = 2, .zero = 2, .trainable = {{"*", false}, {"*.self_attn.*", true}}});
  return all;
}

/// For every kind of layer that has experts: the usual choices, cut rows, and the same on all ranks.
inline std::vector<BlockEntries> expert_strategies(const Model& model) {
  std::vector<std::vector<StrategyEntry>> entries = {{}};
  for (const char* word : {"cut s", "same"}) entries.push_back({{.pattern = "attention.*", .words = {{"tp", word}}}});
  // Columns of a product whose rows are whole, and summands that are summed behind the layer's sum.
  entries.push_back({{.pattern = "attention.norm", .words = {{"tp", "same"}}},
                     {.pattern = "attention.out", .words = {{"tp", "cut k"}}},
                     {.pattern = "attention.sum", .words = {{"tp", "through"}}}});
  std::vector<BlockEntries> strategies;
  for (const std::vector<StrategyEntry>& each : entries) {
    BlockEntries& blocks = strategies.emplace_back();
    for (const Block& kind : model.modules.back().distinct_layers) blocks[kind.name] = each;
  }
  return strategies;
}

}  // namespace weft
