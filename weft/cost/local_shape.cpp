#include "weft/cost/local_shape.h"

namespace weft {

bool has_whole_rows(const Op& op, const BlockSetting& setting) {
  return op.has_whole_rows && (!setting.experts_over_tp || std::holds_alternative<CrossEntropy>(op.shape));
}

int64_t row_share(const Op& op, const BlockSetting& setting) {
  const bool has_own_rows =
      op.split == TensorSplit::kWhole ? !has_whole_rows(op, setting) : has_whole_experts(op, setting.experts_over_tp);
  return has_own_rows ? setting.row_share() : 1;
}

int64_t feature_share(const Op& op, const BlockSetting& setting) {
  return op.split == TensorSplit::kInside ? setting.tp : 1;
}

}  // namespace weft
