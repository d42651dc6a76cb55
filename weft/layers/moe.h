#pragma once

#include <cstdint>

#include "weft/layers/expert_rows.h"
#include "weft/layers/parameter.h"
#include "weft/layers/run_context.h"

namespace weft {

/// Rows · their expert's weightᵀ: rows are sorted by expert, `counts` of them for each. The weight is
/// [experts, out, in]. Experts without rows cost nothing.
at::Tensor expert_linear(const at::Tensor& x, const ParameterPtr& weight, const ExpertCounts& counts,
                         const RunContext& context);

/// Which experts each row goes to, and with what weight.
struct Routing {
  at::Tensor experts;   ///< [rows, experts_per_token]
  at::Tensor weights;   ///< the same, in the rows' type
  at::Tensor order;     ///< of the rows·experts_per_token choices, sorted by expert
  ExpertCounts counts;  ///< choices of each expert
};

/// A mixture of gated MLPs with a router in front.
struct MoeLayer {
  int64_t experts_per_token = 0;
  bool normalizes_weights = false;  ///< the chosen experts' weights of a row sum to 1
  ParameterPtr router;              ///< [experts, width]
  ParameterPtr gate_up;             ///< [experts here, 2·intermediate, width]
  ParameterPtr down;                ///< [experts here, width, intermediate]

  Routing route(const at::Tensor& x, const RunContext& context) const;
  at::Tensor forward(const at::Tensor& x, const RunContext& context) const;
};

}  // namespace weft
