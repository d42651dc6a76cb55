#pragma once

#include <vector>

#include "weft/mesh/transition_form.h"
#include "weft/program/run_strategy.h"
#include "weft/runner/local_operator.h"

namespace weft {

/// A value in one of the layouts in which operators read it. All readers that want the same share it: it comes before
/// the first one runs, and the sum of their gradients goes back behind it.
struct Arrival {
  size_t value = 0;
  std::vector<AxisState> states;
  TransitionForm form;
  bool needs_gradient = false;
  bool is_weight = false;
  size_t first_segment = 0;
  size_t last_segment = 0;
};

/// Operators that run as one function: nothing between them changes its layout, so that they are one autograd graph.
struct LoweredSegment {
  struct Read {
    bool is_leaf = false;
    size_t index = 0;  ///< of the segment's leaf, or of the value that an operator of the segment made
  };
  struct Member {
    size_t op = 0;
    std::vector<Read> reads;  ///< by operand
  };
  std::vector<Member> members;
  std::vector<size_t> leaves;          ///< arrivals
  std::vector<size_t> ends;            ///< values that others read, or nobody
  std::vector<size_t> begins;          ///< arrivals whose first reader is here
  std::vector<size_t> freed_arrivals;  ///< whose last reader is here
  std::vector<size_t> freed_values;    ///< that no arrival behind it is made of
};

/// A program with a strategy as one rank goes through it: what arrives, and segments in the program's order.
struct LoweredProgram {
  const Program* program = nullptr;
  std::vector<std::vector<AxisState>> states;  ///< by value, between the operator that makes it and its readers
  std::vector<LocalOperator> operators;
  std::vector<Arrival> arrivals;
  std::vector<LoweredSegment> segments;
  std::vector<size_t> outputs;  ///< results that nobody reads
};

/// `wants_gradient`: by value, of those that are given. `reduces_first`: no operator reads summands.
Result<LoweredProgram> lower(const Program& program, const RunStrategy& strategy, const MeshGroups& groups,
                             const std::vector<bool>& wants_gradient, bool reduces_first,
                             const CustomOperators& custom);

}  // namespace weft
