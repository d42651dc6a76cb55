#include "weft/cost/local_shape.h"

#include "weft/program/adapter_ops.h"

namespace weft {

bool has_whole_rows(const Op& op, const BlockSetting& setting) {
  if (!op.has_whole_rows || !setting.experts_over_tp) return op.has_whole_rows;
  // The loss's rows, and those of adapters of other products than experts'.
  const auto* matmul = std::get_if<Matmul>(&op.shape);
  const bool is_of_experts = matmul != nullptr && matmul->experts > 1;
  return std::holds_alternative<CrossEntropy>(op.shape) || (is_adapter(op) && !is_of_experts);
}

int64_t row_share(const Op& op, const BlockSetting& setting) {
  const bool has_own_rows =
      op.split() == TensorSplit::kWhole ? !has_whole_rows(op, setting) : has_whole_experts(op, setting.experts_over_tp);
  return has_own_rows ? setting.row_share() : 1;
}

int64_t feature_share(const Op& op, const BlockSetting& setting) {
  return op.split() == TensorSplit::kInside ? setting.tp : 1;
}

}  // namespace weft
