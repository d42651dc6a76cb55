#include "weft/program/custom_functions.h"

#include <algorithm>

#include <fmt/format.h>

#include "weft/base/text.h"

namespace weft {
namespace {

/// What a call of one of the functions declares, beside what the function takes.
class CallCheck {
 public:
  CallCheck(const Program& program, const Operator& op) : program_(program), op_(op), function_(function_of(op)) {}

  std::optional<Error> find_wrong() const {
    if (function_ == "merge_rows") return find_wrong_merge();
    if (op_.operands.size() != 2)
      return wrong(fmt::format("reads {} operands", op_.operands.size()),
                   "The function takes two: packed heads, and their angles or weights.");
    if (auto error = find_wrong_heads()) return error;
    return function_ == "rotary" || function_ == "rotary_table" ? find_wrong_angles() : find_wrong_weight();
  }

 private:
  Error wrong(std::string_view problem, std::string advice) const {
    return {.field = op_.name,
            .problem = fmt::format("calls {}, but {}", in_quotes(function_), problem),
            .advice = std::move(advice)};
  }
  const ProgramDim& last_dim(size_t value) const { return program_.dims[program_.values[value].dims.back()]; }
  std::string dim_text(const ProgramDim& dim) const {
    return fmt::format("'dim {} {}{}'", dim.name, dim.length, dim.unit == 1 ? "" : fmt::format(" unit {}", dim.unit));
  }

  std::optional<Error> find_wrong_merge() const {
    if (op_.operands.size() != 1)
      return wrong(fmt::format("reads {} operands", op_.operands.size()), "The function takes one: rows.");
    const int64_t read = program_.num_elements(op_.operands[0]), made = program_.num_elements(op_.result);
    if (read == made) return std::nullopt;
    return wrong(fmt::format("makes {} elements of {}", made, read),
                 "Merged rows have the elements of those they merge.");
  }

  /// Queries, a key and a value for each head of keys, as attention reads them.
  std::optional<Error> find_wrong_heads() const {
    const Attention& a = op_.attention;
    if (a.heads < 1 || a.kv_heads < 1 || a.head_dim < 1 || a.heads % a.kv_heads != 0)
      return wrong(a.heads < 1 ? "says no heads" : fmt::format("has {} heads for {} of keys", a.heads, a.kv_heads),
                   "Say of what heads its rows are: 'heads QUERIES KEYS ELEMENTS', as attention does, with as many "
                   "queries for each key.");
    const int64_t group = (a.heads / a.kv_heads + 2) * a.head_dim;
    for (const size_t value : {op_.operands[0], op_.result}) {
      if (program_.values[value].dims.empty()) return wrong("reads a number", "The function takes rows of heads.");
      const ProgramDim& dim = last_dim(value);
      if (dim.length != a.kv_heads * group || dim.unit != group)
        return wrong(fmt::format("has {} heads, {} of keys, of {} elements, and {} is {}", a.heads, a.kv_heads,
                                 a.head_dim, in_quotes(program_.values[value].name), dim_text(dim)),
                     fmt::format("A unit is what a key's head, its value and its queries have: 'dim {} {} unit {}'.",
                                 dim.name, a.kv_heads * group, group));
    }
    return std::nullopt;
  }

  std::optional<Error> find_wrong_angles() const {
    const int64_t head_dim = op_.attention.head_dim;
    if (head_dim % 2 != 0)
      return wrong(fmt::format("heads have {} elements", head_dim),
                   "Elements turn in pairs: heads have an even number.");
    const std::vector<size_t>& dims = program_.values[op_.operands[1]].dims;
    const int64_t needed = function_ == "rotary" ? head_dim / 2 : head_dim;
    if (!dims.empty() && program_.dims[dims.back()].length == needed) return std::nullopt;
    return wrong(fmt::format("{} has {} numbers a row", in_quotes(program_.values[op_.operands[1]].name),
                             dims.empty() ? 1 : program_.dims[dims.back()].length),
                 fmt::format("Heads of {} elements need {}: {}.", head_dim, needed,
                             function_ == "rotary" ? "an angle for each pair" : "cosines and, behind them, sines"));
  }

  std::optional<Error> find_wrong_weight() const {
    const Attention& a = op_.attention;
    const ProgramValue& weight = program_.values[op_.operands[1]];
    const int64_t all = (function_ == "norm_queries" ? a.heads : a.kv_heads) * a.head_dim;
    const int64_t length = weight.dims.size() == 1 ? program_.dims[weight.dims[0]].length : 0;
    if (length == a.head_dim || length == all) return std::nullopt;
    return wrong(fmt::format("{} has {}", in_quotes(weight.name),
                             weight.dims.size() == 1 ? fmt::format("{} elements", length) : "not one dim"),
                 fmt::format("A weight of {} elements norms every head by itself, one of {} all heads of a row.",
                             a.head_dim, all));
  }

  const Program& program_;
  const Operator& op_;
  const std::string& function_;
};

}  // namespace

const std::vector<std::string>& custom_functions() {
  static const std::vector<std::string> names{"merge_rows", "norm_keys", "norm_queries", "rotary", "rotary_table"};
  return names;
}

const std::string& function_of(const Operator& op) {
  return op.calculation.calls.empty() ? op.name : op.calculation.calls;
}

std::optional<Error> find_wrong_call(const Program& program, const Operator& op) {
  const std::vector<std::string>& known = custom_functions();
  if (std::find(known.begin(), known.end(), function_of(op)) == known.end()) return std::nullopt;
  return CallCheck(program, op).find_wrong();
}

}  // namespace weft
