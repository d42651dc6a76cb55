#include "weft/meaning/row_changes.h"

#include "weft/base/check.h"
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

std::optional<OperationKind> operation_of(RowChange change, bool divides_rows, bool goes_back) {
  const auto if_divided = [&](OperationKind kind) { return divides_rows ? std::optional(kind) : std::nullopt; };
  switch (change) {
    case RowChange::kEnter:
      if (!goes_back) return if_divided(OperationKind::kAllGather);
      return divides_rows ? OperationKind::kReduceScatter : OperationKind::kAllReduce;
    case RowChange::kLeave:
      if (goes_back) return if_divided(OperationKind::kAllGather);
      return divides_rows ? OperationKind::kReduceScatter : OperationKind::kAllReduce;
    case RowChange::kSum:
      return goes_back ? std::nullopt : std::optional(OperationKind::kAllReduce);
    case RowChange::kDivide:
      return goes_back ? if_divided(OperationKind::kAllGather) : std::nullopt;
    case RowChange::kGather:
      return goes_back ? std::nullopt : if_divided(OperationKind::kAllGather);
    case RowChange::kJoin:
      return goes_back || divides_rows ? std::nullopt : std::optional(OperationKind::kAllGather);
  }
  WEFT_CHECK(false, "unknown change {}", static_cast<int>(change));
}

}  // namespace weft
