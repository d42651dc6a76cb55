#pragma once

#include <algorithm>
#include <random>
#include <vector>

#include "weft/program/program_blocks.h"

namespace weft {

/// Distinct strategies of a block that its operators' rules allow, by operator: the usual one first, then in turn one
/// that leaves most of the usual as it is and one that has nothing to do with it. A block with too few gives fewer.
inline std::vector<std::vector<Choice>> drawn_strategies(const BlockProgram& block, size_t count, uint64_t seed) {
  std::mt19937_64 random(seed);
  const auto num_own = static_cast<std::ptrdiff_t>(block.num_own);
  const std::vector<Choice> usual(block.choices.begin(), block.choices.begin() + num_own);
  std::vector<std::vector<Choice>> drawn = {usual};
  constexpr size_t kMostTries = 10'000;
  for (size_t tries = 0; drawn.size() < count && tries < kMostTries; ++tries) {
    std::vector<Choice> choices = usual;
    const auto draw = [&](size_t op) {
      const std::vector<Choice> all = choices_of(block.program.operators[op].rule);
      choices[op] = all[random() % all.size()];
    };
    if (drawn.size() % 2 == 1) {
      const size_t changes = 1 + random() % 4;
      for (size_t i = 0; i < changes; ++i) draw(random() % choices.size());
    } else {
      for (size_t op = 0; op < choices.size(); ++op) draw(op);
    }
    if (std::find(drawn.begin(), drawn.end(), choices) == drawn.end()) drawn.push_back(std::move(choices));
  }
  return drawn;
}

}  // namespace weft
