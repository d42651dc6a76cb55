#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "weft/base/result.h"
#include "weft/program/calculation.h"
#include "weft/program/op.h"
#include "weft/program/rule.h"

namespace weft {

/// A named dim of a program's tensors. Cuts lie between units: heads, or groups of them, stay together.
struct ProgramDim {
  std::string name;
  int64_t length = 0;
  int64_t unit = 1;

  int64_t num_units() const { return length / unit; }
  /// Elements that the rank with most of them has where it is cut.
  int64_t largest_part(int64_t parts) const { return (num_units() + parts - 1) / parts * unit; }
  bool operator==(const ProgramDim&) const = default;
};

/// A tensor of a program.
struct ProgramValue {
  enum class Role : uint8_t {
    kInput,   ///< an activation that comes from elsewhere, and whose gradient goes back there
    kData,    ///< numbers of tokens, targets: without gradient
    kWeight,  ///< trained
    kResult,  ///< of an operator
  };

  std::string name;
  Role role = Role::kResult;
  std::vector<size_t> dims = {};  ///< of the program

  bool operator==(const ProgramValue&) const = default;
};

enum class OperatorKind : uint8_t {
  kEinsum,       ///< multiplies two operands and sums
  kAdd,          ///< sums operands element by element
  kMultiply,     ///< multiplies them element by element
  kElementwise,  ///< a function that is not linear: an activation, a gate
  kScale,        ///< one that is: rotary embedding, a constant factor
  kDropout,
  kReshape,  ///< other dims, the same elements
  kSum,      ///< over dims
  kNorm,
  kSoftmax,
  kAttention,
  kLookup,
  kCrossEntropy,
  kDispatch,  ///< rows to their experts
  kCombine,   ///< experts' rows back, times the router's weights
  kCustom,    ///< a rule that is declared whole
};

std::string_view name_of(OperatorKind kind);

/// One operator: a rule, the values that it reads and the one that it makes.
struct Operator {
  std::string name;  ///< also of its result
  OperatorKind kind = OperatorKind::kEinsum;
  Rule rule;
  std::vector<size_t> operands;  ///< values
  size_t result = 0;             ///< a value
  Attention attention{};         ///< of one that is attention
  Calculation calculation{};
  bool is_fused = false;  ///< computed with the operator before it: a bias

  bool operator==(const Operator& other) const;
};

/// Operators begin ... end - 1, done `count` times. What they read as `carried_in` is at first that value, then the
/// last time's `carried_out`. Every time has weights of its own.
struct Repeat {
  size_t begin = 0;
  size_t end = 0;
  int64_t count = 1;
  size_t carried_in = 0;   ///< a value
  size_t carried_out = 0;  ///< a value, made inside

  bool operator==(const Repeat&) const = default;
};

/// Single-device code as a printable list of operators, each of which reads what stands before it.
struct Program {
  std::string name;
  std::vector<ProgramDim> dims;
  std::vector<ProgramValue> values;
  std::vector<Operator> operators;
  std::vector<Repeat> repeats;  ///< in order, none inside another

  std::optional<size_t> find_dim(std::string_view dim) const;
  std::optional<size_t> find_value(std::string_view value) const;
  std::optional<size_t> find_operator(std::string_view op) const;
  /// The repeat that an operator is in.
  std::optional<size_t> repeat_of(size_t op) const;
  std::vector<size_t> readers_of(size_t value) const;
  bool has_gradient(size_t value) const { return values[value].role != ProgramValue::Role::kData; }
  int64_t num_elements(size_t value) const;
  bool operator==(const Program&) const = default;
};

/// Every reason why a program means nothing: a rule whose tensors have other dims, dims that differ in units, a value
/// from inside of a repeat that is read outside. The first is returned.
std::optional<Error> find_wrong(const Program& program);

}  // namespace weft
