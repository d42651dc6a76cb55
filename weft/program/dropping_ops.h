#pragma once

#include <algorithm>
#include <vector>

#include "weft/program/module.h"

namespace weft {

/// The share of its elements that an operator drops in training.
inline double dropout_of(const Op& op) {
  if (const auto* attention = std::get_if<Attention>(&op.shape)) return attention->dropout;
  if (const auto* pointwise = std::get_if<Pointwise>(&op.shape)) return pointwise->dropout;
  return 0;
}

/// Whether any operator of a module drops something in training.
inline bool drops_elements(const Module& module) {
  for (int64_t place = 0; place < num_blocks(module); ++place) {
    const std::vector<Op>& ops = block_at(module, place).ops;
    if (std::any_of(ops.begin(), ops.end(), [](const Op& op) { return dropout_of(op) > 0; })) return true;
  }
  return false;
}

/// Whether encoders do, so that rows of media need numbers.
inline bool encoders_drop_elements(const std::vector<Module>& modules) {
  return std::any_of(modules.begin(), modules.end(),
                     [](const Module& module) { return module.kind != ModuleKind::kLlm && drops_elements(module); });
}

}  // namespace weft
