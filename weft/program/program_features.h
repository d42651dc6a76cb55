#pragma once

#include <optional>
#include <vector>

#include "weft/program/program.h"

namespace weft {

/// What the dims of a program are to tensor parallelism, where nobody gives a strategy: of every dim the features that
/// it is, and of every operator the dim of its rule that is cut. It is the usual way: a product whose rows are whole is
/// cut by its outputs, the next one by its inputs, so that rows between blocks are whole.
struct ProgramFeatures {
  std::vector<Features> of_dims;                   ///< by dim of the program; all but the width are cut
  std::vector<std::optional<size_t>> tensor_cuts;  ///< by operator: a dim of its rule; nothing: all ranks do the same

  bool is_cut(size_t dim) const { return of_dims[dim] != Features::kWidth; }
};

/// `whole` are dims that must not be cut: of rows between blocks.
ProgramFeatures features_of(const Program& program, const std::vector<size_t>& whole);

/// Whether an operand is a weight; there is at most one in operators that are products.
bool is_weight(const Program& program, size_t value);

/// The dims of a product with a weight of two dims: one that it sums over, and one that it makes. Nothing where it is
/// no such product.
struct ProductDims {
  size_t rows = 0;             ///< the operand that is no weight
  size_t weight = 1;           ///< the operand that is
  size_t in = 0;               ///< of the rule
  size_t out = 0;              ///< of the rule
  bool is_transposed = false;  ///< the weight's first dim is the one that is summed over
};
std::optional<ProductDims> product_dims(const Program& program, const Operator& op);

}  // namespace weft
