#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "weft/program/activation.h"

namespace weft {

/// What an operator computes, as far as its kind leaves that open. Strategies and prices do not depend on it; a program
/// that runs has it where it is needed.
struct Calculation {
  /// Of an elementwise operator: of its first operand, times all others. Where a unit of the first operand has twice as
  /// many elements as one of the result, the first half goes through the function and is multiplied by the second.
  std::optional<Activation> function;
  double factor = 1;           ///< of a scale
  double dropout = 0;          ///< probability
  double epsilon = 1e-6;       ///< of a norm, or of a custom operator that is one
  int64_t top = 0;             ///< of a softmax: only the largest so many of its results stay, the others are 0; 0: all
  bool is_normalized = false;  ///< those that stay are divided by their sum
  std::string calls = {};  ///< of a custom operator: the function that computes it; empty: it has the operator's name

  bool operator==(const Calculation&) const = default;
};

/// "silu", "gelu_tanh".
std::string_view name_of(Activation function);
std::optional<Activation> find_activation(std::string_view name);
std::vector<std::string> activation_names();

}  // namespace weft
