#pragma once

#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "weft/program/program.h"

namespace weft {

/// What an operator has besides its kind, rule and operands.
struct OperatorOptions {
  std::string_view as = "";                 ///< dims of the result, where they are not called as those of the rule
  std::vector<std::string> whole;           ///< dims of the rule that must not be cut
  std::vector<std::string> inside;          ///< dims over which a custom operator communicates itself
  std::vector<std::vector<size_t>> linear;  ///< of a custom operator, see Rule::linear
  Attention attention = {};
  Calculation calculation = {};
  bool is_fused = false;
};

/// Writes a program as single-device code. The first mistake is kept, with the operator's name; what comes after it is
/// without meaning, and finish() returns it.
///
///   ProgramBuilder code("mlp");
///   code.dim("b", 8), code.dim("s", 512), code.dim("h", 64), code.dim("f", 256);
///   const size_t x = code.input("x", "b s h");
///   const size_t up = code.einsum("up", "b s h, f h -> b s f", {x, code.weight("w", "f h")});
class ProgramBuilder {
 public:
  static constexpr size_t kMostOperators = 10'000;
  /// Every block of a program has a list of all dims: this many for thousands of blocks fit into memory.
  static constexpr size_t kMostDims = 4'096;
  /// Inputs, data and weights: more than so many operators have use for.
  static constexpr size_t kMostLeaves = 50'000;
  static constexpr int64_t kMostRepeats = 100'000;
  using Values = std::vector<size_t>;

  explicit ProgramBuilder(std::string name);

  void dim(std::string_view name, int64_t length, int64_t unit = 1);
  size_t input(std::string_view name, std::string_view dims) { return leaf(name, dims, ProgramValue::Role::kInput); }
  size_t data(std::string_view name, std::string_view dims) { return leaf(name, dims, ProgramValue::Role::kData); }
  size_t weight(std::string_view name, std::string_view dims) { return leaf(name, dims, ProgramValue::Role::kWeight); }

  /// An operator of any kind; its result.
  size_t add(OperatorKind kind, std::string_view name, std::string_view rule, const Values& operands,
             const OperatorOptions& options = {});

  size_t einsum(std::string_view name, std::string_view rule, const Values& operands,
                const OperatorOptions& options = {}) {
    return add(OperatorKind::kEinsum, name, rule, operands, options);
  }
  size_t elementwise(std::string_view name, std::string_view rule, const Values& operands,
                     const OperatorOptions& options = {}) {
    return add(OperatorKind::kElementwise, name, rule, operands, options);
  }
  size_t sum_of(std::string_view name, std::string_view rule, const Values& operands,
                const OperatorOptions& options = {}) {
    return add(OperatorKind::kAdd, name, rule, operands, options);
  }
  size_t norm(std::string_view name, std::string_view rule, const Values& operands,
              const OperatorOptions& options = {}) {
    return add(OperatorKind::kNorm, name, rule, operands, options);
  }
  size_t softmax(std::string_view name, std::string_view rule, size_t operand) {
    return add(OperatorKind::kSoftmax, name, rule, {operand});
  }
  size_t attention(std::string_view name, std::string_view rule, size_t operand, const OperatorOptions& options) {
    return add(OperatorKind::kAttention, name, rule, {operand}, options);
  }
  size_t lookup(std::string_view name, std::string_view rule, size_t ids, size_t table) {
    return add(OperatorKind::kLookup, name, rule, {ids, table});
  }
  size_t cross_entropy(std::string_view name, std::string_view rule, size_t logits, size_t targets) {
    return add(OperatorKind::kCrossEntropy, name, rule, {logits, targets});
  }
  size_t dropout(std::string_view name, std::string_view rule, size_t operand, double probability = 0) {
    return add(OperatorKind::kDropout, name, rule, {operand}, {.calculation = {.dropout = probability}});
  }
  size_t reshape(std::string_view name, std::string_view rule, size_t operand, const OperatorOptions& options = {}) {
    return add(OperatorKind::kReshape, name, rule, {operand}, options);
  }
  size_t custom(std::string_view name, std::string_view rule, const Values& operands, const OperatorOptions& options) {
    return add(OperatorKind::kCustom, name, rule, operands, options);
  }

  /// What follows, until end_repeat, is done `count` times.
  void begin_repeat(int64_t count, size_t carried);
  void end_repeat(size_t value);

  const Program& program() const { return program_; }
  std::optional<size_t> find_value(std::string_view name) const;
  bool failed() const { return error_.has_value(); }
  /// Names the line that the next mistake is in.
  void set_source(std::string source) { source_ = std::move(source); }
  void fail(std::string_view where, std::string problem, std::string advice);
  Result<Program> finish();

 private:
  size_t leaf(std::string_view name, std::string_view dims, ProgramValue::Role role);
  std::vector<size_t> dims_named(std::string_view where, std::string_view names);
  bool is_new_name(std::string_view name);
  void check_linear(std::string_view name, const Rule& rule);
  void check_window(std::string_view name, const Attention& attention);
  void check_calculation(OperatorKind kind, std::string_view name, const Calculation& calculation);

  Program program_;
  std::unordered_map<std::string, size_t> dims_, values_;  ///< by name
  size_t num_leaves_ = 0;
  bool is_repeating_ = false;
  std::string source_;
  std::optional<Error> error_;
};

/// Whether a mask has a number of rows: a window that slides, or windows side by side.
inline bool has_windows(Mask mask) {
  return mask == Mask::kSliding || mask == Mask::kWindowed;
}

/// Texts between blanks.
std::vector<std::string_view> words_of(std::string_view text);

}  // namespace weft
