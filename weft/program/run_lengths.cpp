#include "weft/program/run_lengths.h"

#include <algorithm>
#include <limits>

#include <fmt/format.h>

#include "weft/base/text.h"

namespace weft {
namespace {

/// A product that does not fit stays at the largest number.
int64_t product_of(int64_t a, int64_t b) {
  int64_t product = 0;
  return __builtin_mul_overflow(a, b, &product) ? std::numeric_limits<int64_t>::max() : product;
}

/// Lets dims follow those that were changed, operator by operator.
class LengthWalk {
 public:
  LengthWalk(const Program& program, RunLengths lengths, std::vector<bool> is_set)
      : program_(program), lengths_(std::move(lengths)), is_set_(std::move(is_set)) {}

  Result<RunLengths> run() {
    for (const Operator& op : program_.operators) {
      if (auto error = follow(op)) return *std::move(error);
    }
    return std::move(lengths_);
  }

 private:
  template <typename Visit>
  static void each_term(const Program& program, const Operator& op, Visit visit) {
    for (size_t i = 0; i < op.operands.size(); ++i) visit(op.rule.operands[i], program.values[op.operands[i]]);
    visit(op.rule.result, program.values[op.result]);
  }

  std::optional<Error> follow(const Operator& op) {
    // Dims of the rule, each with a dim of the program that says how many units it has: one that was changed, if any.
    std::vector<std::optional<size_t>> known(op.rule.dims.size());
    each_term(program_, op, [&](const RuleTerm& term, const ProgramValue& value) {
      for (size_t place = 0; place < term.size(); ++place) {
        if (term[place].size() != 1) continue;
        std::optional<size_t>& first = known[term[place][0]];
        if (!first || (!is_set_[*first] && is_set_[value.dims[place]])) first = value.dims[place];
      }
    });
    std::optional<Error> wrong;
    each_term(program_, op, [&](const RuleTerm& term, const ProgramValue& value) {
      for (size_t place = 0; place < term.size() && !wrong; ++place)
        wrong = follow(op, term[place], value.dims[place], known);
    });
    return wrong;
  }

  std::optional<Error> follow(const Operator& op, const std::vector<size_t>& parts, size_t dim,
                              const std::vector<std::optional<size_t>>& known) {
    DimLength wanted = lengths_[dim];
    bool is_changed = false;
    if (parts.size() == 1) {
      wanted.length = product_of(lengths_[*known[parts[0]]].num_units(), wanted.unit);
      is_changed = is_set_[*known[parts[0]]];
    } else {
      // Any number of rows may go to an expert, so that there is room for all.
      const bool has_room = op.kind == OperatorKind::kDispatch;
      is_changed = has_room;
      // Cuts of the outermost lie between whole rows of the others.
      int64_t inner = 1, declared_inner = 1, all = 1;
      for (size_t i = 0; i < parts.size(); ++i) {
        if (!known[parts[i]]) return std::nullopt;  // only this tensor has it: as declared
        is_changed = is_changed || is_set_[*known[parts[i]]];
        all = product_of(all, lengths_[*known[parts[i]]].length);
        if (i == 0) continue;
        inner = product_of(inner, lengths_[*known[parts[i]]].length);
        declared_inner = product_of(declared_inner, program_.dims[*known[parts[i]]].length);
      }
      if (has_room || program_.dims[dim].unit == declared_inner) wanted.unit = std::max<int64_t>(1, inner);
      wanted.length = all;
    }
    if (!is_changed || wanted == lengths_[dim]) {
      is_set_[dim] = is_set_[dim] || is_changed;
      return std::nullopt;
    }
    if (is_set_[dim])
      return Error{.field = op.name,
                   .problem = fmt::format("the dim {} would have {} elements and {}",
                                          in_quotes(program_.dims[dim].name), lengths_[dim].length, wanted.length),
                   .advice = "Give lengths that fit each other."};
    if (wanted.length > Layout::kMostElements)
      return Error{.field = op.name,
                   .problem = fmt::format("the dim {} would have more than {} elements",
                                          in_quotes(program_.dims[dim].name), with_commas(Layout::kMostElements)),
                   .advice = "Give smaller lengths."};
    lengths_[dim] = wanted;
    is_set_[dim] = true;
    return std::nullopt;
  }

  const Program& program_;
  RunLengths lengths_;
  std::vector<bool> is_set_;
};

}  // namespace

RunLengths declared_lengths(const Program& program) {
  RunLengths lengths;
  for (const ProgramDim& dim : program.dims) lengths.push_back({.length = dim.length, .unit = dim.unit});
  return lengths;
}

Result<RunLengths> changed_lengths(const Program& program,
                                   const std::vector<std::pair<std::string, int64_t>>& changes) {
  RunLengths lengths = declared_lengths(program);
  std::vector<bool> is_set(lengths.size());
  for (const auto& [name, length] : changes) {
    const auto dim = program.find_dim(name);
    if (!dim) {
      std::vector<std::string> names;
      for (const ProgramDim& known : program.dims) names.push_back(known.name);
      return Error{.field = name,
                   .problem = fmt::format("is no dim of {}", program.name),
                   .advice = fmt::format("Give {}.{}", joined_or(names), did_you_mean(name, names))};
    }
    if (length < 0 || length % lengths[*dim].unit != 0)
      return Error{.field = name,
                   .problem = fmt::format("has {} elements, in units of {}", length, lengths[*dim].unit),
                   .advice = "Give a multiple of the unit."};
    lengths[*dim].length = length;
    is_set[*dim] = true;
  }
  return LengthWalk(program, std::move(lengths), std::move(is_set)).run();
}

}  // namespace weft
