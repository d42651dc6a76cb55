#pragma once

#include <functional>
#include <map>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "weft/mesh/box.h"
#include "weft/program/program.h"

namespace weft {

/// How a custom operator is called on one rank.
struct CustomCall {
  const Operator& op;
  std::span<const Box> parts;                    ///< by operand: what is here of it
  std::span<const std::vector<int64_t>> shapes;  ///< by operand: of the whole
  std::span<const int64_t> result_shape;         ///< of what is made here
  /// Sums over the ranks that share a dim which is cut inside, one number for each row of the first operand. A
  /// function whose rule has such a dim calls it once on every rank, whether its part is empty or not.
  std::function<at::Tensor(const at::Tensor&)> sum_inside;
  /// Nobody else reads the first operand, now or going back: a function may make its result of that memory.
  bool owns_first = false;
};

/// A custom operator cannot be computed of the parts that a rank has: what its function says that it takes, or its rule
/// that it makes, is not so.
class WrongCall : public std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// Computes this rank's part of a result from its parts of the operands, with LibTorch's functions: gradients are
/// autograd's. A part may be empty: where a dim has fewer units than there are ranks.
using CustomFunction = std::function<at::Tensor(const std::vector<at::Tensor>& operands, const CustomCall& call)>;

/// What custom operators compute, by the names that programs call them by. A value.
class CustomOperators {
 public:
  /// Those that programs of models call: "rotary", which turns the heads of packed queries and keys by angles
  /// ("rotary_table": by their cosines and sines), and "norm_queries" and "norm_keys", root-mean-square norms of every
  /// head, or of all heads of a row together, and "merge_rows", which makes one long row of several.
  static CustomOperators built_in();

  /// Fails for a name that is taken.
  std::optional<Error> add(std::string name, CustomFunction function);
  /// Nothing where nobody has said what the operator computes.
  const CustomFunction* find(const Operator& op) const;
  std::vector<std::string> names() const;

 private:
  std::map<std::string, CustomFunction, std::less<>> functions_;
};

}  // namespace weft
