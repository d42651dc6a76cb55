#include "weft/meaning/row_changes.h"

#include <optional>

#include "weft/base/check.h"
#include "weft/meaning/op_share.h"
#include "weft/mesh/split.h"

namespace weft {

RowStates states_of(RowChange change, bool divides_rows) {
  const AxisState between = divides_rows ? AxisState::shard(0) : AxisState::replicated();
  switch (change) {
    case RowChange::kEnter:
      return {between, AxisState::replicated_partial_grad()};
    case RowChange::kLeave:
      return {AxisState::partial(), between};
    case RowChange::kSum:
      return {AxisState::partial(), AxisState::replicated()};
    case RowChange::kDivide:
      return {AxisState::replicated(), between};
    case RowChange::kGather:
      return {between, AxisState::replicated()};
    case RowChange::kJoin:
      return {AxisState::shard(0), between};
  }
  WEFT_CHECK(false, "unknown change {}", static_cast<int>(change));
}

Range rows_sent(int64_t rows, int64_t tp, int64_t tp_rank) {
  return Split(rows, {tp}).part(tp_rank);
}

bool enters_alone(const Op& op) {
  const auto* matmul = std::get_if<Matmul>(&op.shape);
  return matmul != nullptr && op.split == TensorSplit::kColumn && matmul->copies == 1;
}

std::vector<BlockChange> block_changes(const Module& module, const Block& block, bool divides_rows,
                                       bool experts_over_tp) {
  std::vector<BlockChange> changes;
  std::optional<size_t> pooling;
  for (size_t i = 0; i < block.ops.size(); ++i) {
    const Op& op = block.ops[i];
    if (has_whole_experts(op, experts_over_tp)) continue;
    const auto* matmul = std::get_if<Matmul>(&op.shape);
    // Rows become whole before they are merged, and before copies of them go to experts.
    if (matmul != nullptr && op.split == TensorSplit::kColumn)
      changes.push_back({.change = RowChange::kEnter,
                         .columns = module.width,
                         .op = i,
                         .happens_again = divides_rows && enters_alone(op)});
    if (matmul != nullptr && op.split == TensorSplit::kRow)
      changes.push_back({.change = RowChange::kLeave,
                         .has_outputs = op.rows == module.output_rows && op.rows != RowsPerToken{},
                         .columns = matmul->out,
                         .op = i});
    const bool pools = op.split == TensorSplit::kWhole && op.rows == module.output_rows && op.rows != RowsPerToken{};
    if (pools && !pooling) pooling = i;
  }
  // Rows that are pooled may lie on two ranks: they become whole, and each rank pools its own.
  if (changes.empty() && pooling && divides_rows)
    changes.push_back({.change = RowChange::kEnter, .columns = module.width, .op = *pooling});
  return changes;
}

}  // namespace weft
