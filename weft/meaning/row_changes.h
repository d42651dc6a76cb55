#pragma once

#include <cstdint>
#include <optional>

#include "weft/mesh/group_traffic.h"
#include "weft/mesh/layout.h"

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

/// What tensor-parallel ranks do together in a change or, going back, with its gradients; nothing where each works on
/// its own. mesh/transition finds the same for rows of a given number.
std::optional<OperationKind> operation_of(RowChange change, bool divides_rows, bool goes_back);

}  // namespace weft
