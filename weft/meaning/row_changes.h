#pragma once

#include <vector>

#include "weft/mesh/layout.h"
#include "weft/spec/model.h"

namespace weft {

/// What tensor parallelism does to activations at the borders of what it spreads over ranks. Between blocks rows are
/// whole on every rank or, with sequence parallelism, divided.
enum class RowChange : uint8_t {
  kEnter,   ///< rows as between blocks become whole ones, the input of weights that are cut by columns
  kLeave,   ///< the summands that weights which are cut by rows give become rows as between blocks
  kSum,     ///< summands become whole rows on every rank
  kDivide,  ///< whole rows, the same on every rank, become rows as between blocks
  kGather,  ///< rows as between blocks become whole ones that every rank does the same with
  kJoin,    ///< the parts of rows that came from another stage become rows as between blocks
};

/// How rows lie before and after a change, along the tensor-parallel axis.
struct RowStates {
  AxisState from;
  AxisState to;
};
RowStates states_of(RowChange change, bool divides_rows);

/// Of rows that go from stage to stage, those that a tensor-parallel rank sends to its counterpart: its part, which is
/// all that it has where they are divided.
Range rows_sent(int64_t rows, int64_t tp, int64_t tp_rank);

/// Whether a product reads rows that are made whole for it alone. With sequence parallelism a rank then keeps its part
/// of them and makes them whole again for the weight's gradient. Experts and their router share whole rows, of which
/// copies are kept anyway.
bool enters_alone(const Op& op);

/// A change that a block makes.
struct BlockChange {
  RowChange change = RowChange::kEnter;
  bool has_outputs = false;  ///< its rows are those that leave the module: fewer, after a merge or a pooling
  int64_t columns = 0;
  size_t op = 0;               ///< of the block: before which rows become whole, or whose summands become rows
  bool happens_again = false;  ///< the way there, once more for the weight's gradient
};

/// Rows that change around an operator, per token. Experts get copies of rows after these became whole, and what they
/// give is summed by row before ranks sum it.
inline RowsPerToken rows_around(const Op& op) {
  const auto* matmul = std::get_if<Matmul>(&op.shape);
  return matmul != nullptr && matmul->copies > 1 ? RowsPerToken{} : op.rows;
}

/// Those of a layer or an exit, in order; none around experts that are spread over tp. An embedding's depend on what is
/// placed among its rows.
std::vector<BlockChange> block_changes(const Module& module, const Block& block, bool divides_rows,
                                       bool experts_over_tp = false);

}  // namespace weft
