#pragma once

#include <algorithm>
#include <variant>

#include "weft/spec/model.h"

namespace weft {

/// Of the layers that have the most; 1 without any.
inline int64_t num_experts(const Module& module) {
  int64_t experts = 1;
  for (const Block& kind : module.distinct_layers) {
    for (const Op& op : kind.ops) {
      if (const auto* matmul = std::get_if<Matmul>(&op.shape)) experts = std::max(experts, matmul->experts);
    }
  }
  return experts;
}

/// Whether a layer's rows choose among experts.
inline bool has_router(const Block& layer) {
  return std::any_of(layer.ops.begin(), layer.ops.end(), is_router);
}

/// Whether training adds a loss that keeps experts evenly loaded.
inline bool balances_experts(const Model& model) {
  return model.numbers.llm.balance_coefficient > 0;
}

}  // namespace weft
