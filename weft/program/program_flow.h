#pragma once

#include <vector>

#include "weft/mesh/transition_form.h"
#include "weft/program/run_lengths.h"
#include "weft/program/run_strategy.h"

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
struct FlowSegment {
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

/// A program with a strategy as every rank goes through it: what arrives, and segments in the program's order.
struct ProgramFlow {
  const Program* program = nullptr;
  AxisGrid grid;
  std::vector<std::vector<Choice>> choices;    ///< by operator and axis, as they run
  std::vector<std::vector<AxisState>> states;  ///< by value, between the operator that makes it and its readers
  std::vector<Arrival> arrivals;
  std::vector<FlowSegment> segments;
  std::vector<size_t> outputs;       ///< results that nobody reads
  std::vector<bool> needs_gradient;  ///< by value: it is made of something whose gradient is wanted, or is that

  /// Axes of more than one rank, on which an operator cuts a dim that is inside: it communicates over them itself.
  AxisList inside_axes(size_t op) const;
};

/// `wants_gradient`: by value, of those that are given. `reduces_first`: no operator reads summands. The program must
/// outlive the flow. Fails where a choice is not the rule's, and where states contradict each other.
Result<ProgramFlow> flow_of(const Program& program, const RunStrategy& strategy, const AxisGrid& grid,
                            const std::vector<bool>& wants_gradient, bool reduces_first);

/// What an operator that cuts a dim inside sums over its ranks, forward and back: numbers for every row of its first
/// operand, a sum each. Attention has none: keys and values go there instead.
struct InsideSums {
  std::vector<int64_t> forward;
  std::vector<int64_t> backward;
};
InsideSums inside_sums(const Operator& op);

/// How keys and values of packed groups of queries, a key and a value come to all ranks that have rows.
TransitionForm keys_form(const ProgramFlow& flow, size_t op);
/// Their layout, cut like the packed rows.
Layout keys_layout(const Program& program, size_t op, const AxisGrid& grid, const RunLengths& lengths,
                   const std::vector<AxisState>& states);

}  // namespace weft
