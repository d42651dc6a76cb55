#pragma once

#include <complex>
#include <cstdint>
#include <optional>
#include <vector>

#include "tests/support/mesh/simulated_tensor.h"
#include "weft/program/program.h"

namespace weft {

/// What operators compute, spelled out on plain numbers: the proofs of the rules run on it. Gradients come from complex
/// steps, so that they are as exact as the values and follow from them alone.

/// An operator and the lengths of its tensors: for each operand, and the result, the length and the unit of each dim.
struct SimulatedOperator {
  OperatorKind kind = OperatorKind::kEinsum;
  Rule rule;
  std::vector<std::vector<int64_t>> shapes;  ///< of the operands, then of the result
  std::vector<std::vector<int64_t>> units;   ///< likewise
  std::vector<bool> is_data = {};            ///< operands without gradient; none where it is empty
  Attention attention = {};

  bool has_gradient(size_t operand) const { return is_data.empty() || !is_data[operand]; }
};

using Numbers = std::vector<std::complex<double>>;

/// A block of a logical tensor.
struct SimulatedBlock {
  Box box;
  Numbers elements;
};

/// What one device makes of blocks of the operands: the block `result` of the result. Nothing where the blocks do not
/// fit together.
std::optional<Numbers> compute_block(const SimulatedOperator& op, const std::vector<SimulatedBlock>& operands,
                                     const Box& result);

/// The gradient of an operand, for a gradient of the result.
std::vector<double> block_gradient(const SimulatedOperator& op, const std::vector<SimulatedBlock>& operands,
                                   const Box& result, const std::vector<double>& result_gradient, size_t operand);

/// Whether ranks that hold operands in the given states, compute on what they hold (over dims that are inside:
/// together) and take the result to be in the given state have the right result and the right gradients.
/// `states` are by axis; `inside` says of an axis which dim of the rule the operator communicates over itself.
bool is_true_of(const SimulatedOperator& op, const AxisGrid& grid, const std::vector<ChoiceStates>& states,
                const std::vector<std::optional<size_t>>& inside, uint64_t seed);

/// The same of choices.
bool is_true_of(const SimulatedOperator& op, const AxisGrid& grid, const std::vector<Choice>& choices, uint64_t seed);

}  // namespace weft
