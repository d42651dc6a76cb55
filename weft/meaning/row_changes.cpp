#include "weft/meaning/row_changes.h"

#include <array>

#include "weft/base/check.h"
#include "weft/mesh/split.h"
#include "weft/program/rule.h"

namespace weft {
namespace {

constexpr std::array kChanges{RowChange::kEnter,  RowChange::kLeave,  RowChange::kSum,
                              RowChange::kDivide, RowChange::kGather, RowChange::kJoin};

/// What operators ask of rows and give, by what they do on the tensor-parallel axis: products cut the wide features f,
/// whatever stands between them cuts rows or does the same on all ranks.
RowStates find_states(RowChange change, bool divides_rows) {
  const Rule rowwise = *parse_rule("r h -> r h");
  const Rule up = *parse_rule("r h, f h -> r f"), down = *parse_rule("r f, h f -> r h");
  const ChoiceStates same = states_of(rowwise, Choice::same());
  const ChoiceStates divided = states_of(rowwise, Choice::cut(*rowwise.find("r")));
  const AxisState between = (divides_rows ? divided : same).result;
  const AxisState summands = states_of(down, Choice::cut(*down.find("f"))).result;
  switch (change) {
    case RowChange::kEnter:
      return {between, states_of(up, Choice::cut(*up.find("f"))).operands[0]};
    case RowChange::kLeave:
      return {summands, between};
    case RowChange::kSum:
      return {summands, same.operands[0]};
    case RowChange::kDivide:
      return {same.result, between};
    case RowChange::kGather:
      return {between, same.operands[0]};
    case RowChange::kJoin:
      return {divided.result, between};
  }
  WEFT_CHECK(false, "unknown change {}", static_cast<int>(change));
}

/// What one axis communicates between two states.
std::optional<OperationKind> operation_between(AxisState from, AxisState to) {
  if (from.is_partial() && to.is_shard()) return OperationKind::kReduceScatter;
  if (from.is_partial() && to.is_replicated()) return OperationKind::kAllReduce;
  if (from.is_shard() && to.is_replicated()) return OperationKind::kAllGather;
  return std::nullopt;
}

}  // namespace

RowStates states_of(RowChange change, bool divides_rows) {
  static const auto kStates = [] {
    std::array<std::array<RowStates, 2>, kChanges.size()> states;
    for (const RowChange each : kChanges) {
      for (const bool divides : {false, true}) states[static_cast<size_t>(each)][divides] = find_states(each, divides);
    }
    return states;
  }();
  return kStates.at(static_cast<size_t>(change))[divides_rows];
}

Range rows_sent(int64_t rows, int64_t tp, int64_t tp_rank) {
  return Split(rows, {tp}).part(tp_rank);
}

std::optional<OperationKind> operation_of(RowChange change, bool divides_rows, bool goes_back) {
  const RowStates states = states_of(change, divides_rows);
  if (goes_back) return operation_between(states.to.gradient(), states.from.gradient());
  return operation_between(states.from, states.to);
}

}  // namespace weft
