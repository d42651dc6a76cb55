#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include <ATen/core/Tensor.h>

#include "weft/program/program.h"
#include "weft/runner/custom_operators.h"

namespace weft {

/// What a rule is tried with.
struct RuleCheckOptions {
  std::vector<int64_t> ranks = {2, 3};    ///< of the axis on which choices are tried
  std::vector<at::Tensor> operands = {};  ///< whole, in fp64; an undefined one, or none at all: drawn. Data must be
                                          ///< given where any numbers will not do
  uint64_t seed = 1;
  double most_difference = 1e-9;           ///< from one device, over the largest element
  double most_gradient_difference = 1e-5;  ///< of a gradient from finite differences, likewise
};

/// Runs one operator of a program in double precision and says what refutes its rule: a gradient that is not that of
/// the function (by finite differences), or a choice that the rule allows and under which ranks' parts of the result or
/// of a gradient are not one device's, or cannot be computed because the function throws. The error names the operator,
/// the choice with its dim, and the operand. Nothing where all agree, which they do for the lengths that the program
/// declares. Where a dim has fewer units than an axis has ranks, some ranks have empty parts, as in a run.
std::optional<Error> find_wrong_rule(const Program& program, size_t op, const CustomOperators& custom,
                                     const RuleCheckOptions& options = {});

}  // namespace weft
