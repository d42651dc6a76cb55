#pragma once

#include <random>

#include "weft/program/program_blocks.h"
#include "weft/program/program_strategy.h"

namespace weft {

/// Any choices that the rules of a program's operators allow, good or bad: for most operators of every kind of block
/// that has one. Attention has rows of whole sequences where it must.
inline BlockEntries random_strategy(const Module& module, std::mt19937_64& random, bool has_whole_attention = false) {
  BlockEntries blocks;
  for (const Block* kind : kinds_of_blocks(module)) {
    if (!kind->program) continue;
    const BlockProgram& block = *kind->program;
    for (size_t i = 0; i < block.num_own; ++i) {
      if (random() % 5 == 0) continue;
      const Operator& op = block.program.operators[i];
      std::vector<Choice> choices = choices_of(op.rule);
      if (has_whole_attention && op.kind == OperatorKind::kAttention)
        std::erase_if(choices, [&](Choice choice) { return is_cut_inside(op.rule, choice); });
      const Choice choice = choices[random() % choices.size()];
      blocks[kind->name].push_back({.pattern = op.name, .words = {{"tp", text_of(op.rule, choice)}}});
    }
  }
  return blocks;
}

/// The same for all kinds of a family's layers, or some where it has several.
inline BlockEntries random_layer_strategy(const Module& module, int64_t tp, std::mt19937_64& random,
                                          bool has_whole_attention = false) {
  BlockEntries all;
  for (const Block& kind : module.distinct_layers) {
    if (module.distinct_layers.size() == 1 || random() % 3 != 0) all[kind.name] = {};
  }
  BlockEntries blocks = random_strategy(*with_strategy(module, all, tp), random, has_whole_attention);
  blocks.merge(all);
  return blocks;
}

}  // namespace weft
