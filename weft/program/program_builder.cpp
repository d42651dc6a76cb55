#include "weft/program/program_builder.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <set>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "weft/base/text.h"
#include "weft/program/operator_rules.h"

namespace weft {
namespace {

constexpr int64_t kLongest = int64_t{1} << 40;

bool is_name(std::string_view name) {
  return !name.empty() && name.size() <= 100 && std::all_of(name.begin(), name.end(), [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '.' || c == '-';
  });
}

std::optional<size_t> find_name(const std::unordered_map<std::string, size_t>& places, std::string_view name) {
  const auto found = places.find(std::string(name));
  if (found == places.end()) return std::nullopt;
  return found->second;
}

template <typename List>
std::vector<std::string> names_of(const List& list) {
  std::vector<std::string> names;
  for (const auto& entry : list) names.push_back(entry.name);
  return names;
}

}  // namespace

std::vector<std::string_view> words_of(std::string_view text) {
  std::vector<std::string_view> words;
  size_t begin = 0;
  while (begin < text.size()) {
    if (text[begin] == ' ' || text[begin] == '\t') {
      ++begin;
      continue;
    }
    const size_t end = std::min(text.find_first_of(" \t", begin), text.size());
    words.push_back(text.substr(begin, end - begin));
    begin = end;
  }
  return words;
}

ProgramBuilder::ProgramBuilder(std::string name) {
  program_.name = std::move(name);
}

void ProgramBuilder::fail(std::string_view where, std::string problem, std::string advice) {
  if (error_) return;
  error_ =
      Error{.source = source_, .field = std::string(where), .problem = std::move(problem), .advice = std::move(advice)};
}

std::optional<size_t> ProgramBuilder::find_value(std::string_view name) const {
  return find_name(values_, name);
}

bool ProgramBuilder::is_new_name(std::string_view name) {
  if (!is_name(name)) {
    fail(printable(name), fmt::format("{} is no name", in_quotes(name)),
         "Names have letters, digits, '_', '.' and '-', at most 100.");
    return false;
  }
  if (find_value(name)) {
    fail(name, "is there already", "Every tensor and operator has a name of its own.");
    return false;
  }
  return !failed();
}

void ProgramBuilder::dim(std::string_view name, int64_t length, int64_t unit) {
  if (!is_name(name) || name.find_first_of(".-") != std::string_view::npos)
    return fail(printable(name), fmt::format("{} is no name of a dim", in_quotes(name)),
                "Dims have letters, digits and '_'.");
  if (find_name(dims_, name)) return fail(name, "is declared twice", "Leave one out.");
  if (program_.dims.size() >= kMostDims)
    return fail(name, fmt::format("is one dim more than {}", kMostDims), "Use the same dim for tensors that share it.");
  if (length < 0 || length > kLongest)
    return fail(name, fmt::format("has the length {}, 0 to {} is possible", length, kLongest), "Correct the dim.");
  if (unit < 1 || length % unit != 0)
    return fail(name, fmt::format("has the length {} and units of {}", length, unit),
                "The length must be whole units.");
  dims_.emplace(name, program_.dims.size());
  program_.dims.push_back({std::string(name), length, unit});
}

std::vector<size_t> ProgramBuilder::dims_named(std::string_view where, std::string_view names) {
  std::vector<size_t> dims;
  int64_t elements = 1;
  for (const std::string_view name : words_of(names)) {
    const auto dim = find_name(dims_, name);
    if (!dim) {
      const std::vector<std::string> known = names_of(program_.dims);
      fail(where, fmt::format("the dim {} does not exist", in_quotes(name)),
           known.empty() ? "Declare it first: dim NAME LENGTH."
                         : fmt::format("Known are {}.{}", printable(joined_or(known), 200), did_you_mean(name, known)));
      return {};
    }
    const int64_t length = std::max<int64_t>(1, program_.dims[*dim].length);
    if (length > Layout::kMostElements / elements) {
      fail(where, fmt::format("has more than {} elements", with_commas(Layout::kMostElements)), "Correct its dims.");
      return {};
    }
    elements *= length;
    dims.push_back(*dim);
  }
  if (dims.size() > Layout::kMostDims)
    fail(where, fmt::format("has {} dims, at most {} are possible", dims.size(), Layout::kMostDims), "Join some.");
  return dims;
}

size_t ProgramBuilder::leaf(std::string_view name, std::string_view dims, ProgramValue::Role role) {
  if (failed() || !is_new_name(name)) return 0;
  if (num_leaves_ >= kMostLeaves) {
    fail(name, fmt::format("is one input, data or weight more than {}", kMostLeaves),
         "Write layers that are alike as a repeat.");
    return 0;
  }
  const std::vector<size_t> found = dims_named(name, dims);
  if (failed()) return 0;
  ++num_leaves_;
  values_.emplace(name, program_.values.size());
  program_.values.push_back({std::string(name), role, found});
  return program_.values.size() - 1;
}

size_t ProgramBuilder::add(OperatorKind kind, std::string_view name, std::string_view rule_text, const Values& operands,
                           const OperatorOptions& options) {
  if (failed() || !is_new_name(name)) return 0;
  if (program_.operators.size() >= kMostOperators) {
    fail(name, fmt::format("is one operator more than {}", kMostOperators), "Write layers that are alike as a repeat.");
    return 0;
  }
  const auto keep = [&](const Error& error) {
    fail(name, error.problem, error.advice);
    return size_t{0};
  };
  Result<Rule> parsed = parse_rule(rule_text);
  if (!parsed) return keep(parsed.error());
  if (parsed->operands.size() != operands.size()) {
    fail(name,
         fmt::format("reads {} tensors, but the rule {} has {}", operands.size(), in_quotes(parsed->text()),
                     parsed->operands.size()),
         "Give each operand a part of the rule.");
    return 0;
  }
  Result<Rule> completed = complete_rule(kind, *std::move(parsed));
  if (!completed) return keep(completed.error());
  Rule& rule = *completed;
  const auto set = [&](const std::vector<std::string>& dims, DimKind dim_kind) {
    for (const std::string& dim : dims) {
      const auto found = rule.find(dim);
      if (!found) {
        fail(name, fmt::format("the dim {} is not in the rule {}", in_quotes(dim), in_quotes(rule.text())),
             "Name a dim of the rule.");
      } else {
        rule.dims[*found].kind = dim_kind;
      }
    }
  };
  set(options.whole, DimKind::kWhole);
  // The largest of a row are found where all of it is.
  if (kind == OperatorKind::kSoftmax && options.calculation.top > 0 && !rule.operands[0].empty()) {
    for (const size_t dim : rule.operands[0].back()) rule.dims[dim].kind = DimKind::kWhole;
  }
  if (kind == OperatorKind::kCustom) {
    set(options.inside, DimKind::kInside);
    rule.linear = options.linear;
    check_linear(name, rule);
  } else if (!options.inside.empty() || !options.linear.empty()) {
    fail(name, fmt::format("an operator of kind {} declares inside or linear", name_of(kind)),
         "Only a custom operator does; for others they follow from the kind.");
  }
  Calculation calculation = options.calculation;
  Attention attention = options.attention;
  if (!has_windows(attention.mask)) attention.window = 0;  // it means nothing
  // Attention drops weights between rows.
  if (kind == OperatorKind::kAttention && calculation.dropout != 0)
    attention.dropout = std::exchange(calculation.dropout, 0);
  check_calculation(kind, name, calculation);
  if (!(attention.dropout >= 0 && attention.dropout < 1))
    fail(name, fmt::format("drops with the probability {}", attention.dropout), "It is at least 0 and below 1.");
  if (kind == OperatorKind::kAttention && options.attention.heads < 1)
    fail(name, "does not say its heads", "Add 'heads QUERIES KEYS ELEMENTS', like 'heads 32 8 128'.");
  if (kind == OperatorKind::kAttention) check_window(name, attention);
  std::string dims(options.as);
  if (dims.empty()) {
    for (const std::vector<size_t>& parts : rule.result) {
      if (parts.size() > 1)
        fail(name, fmt::format("the result of the rule {} has rows of several dims", in_quotes(rule.text())),
             "Name its dims: 'as ...'.");
      dims += (dims.empty() ? "" : " ") + rule.dims[parts[0]].name;
    }
  }
  const std::vector<size_t> found = dims_named(name, dims);
  if (failed()) return 0;
  values_.emplace(name, program_.values.size());
  program_.values.push_back({std::string(name), ProgramValue::Role::kResult, found});
  program_.operators.push_back({.name = std::string(name),
                                .kind = kind,
                                .rule = std::move(rule),
                                .operands = operands,
                                .result = program_.values.size() - 1,
                                .attention = attention,
                                .calculation = std::move(calculation),
                                .is_fused = options.is_fused});
  return program_.values.size() - 1;
}

void ProgramBuilder::check_linear(std::string_view name, const Rule& rule) {
  std::set<std::set<size_t>> known;
  for (const std::vector<size_t>& together : rule.linear) {
    if (together.empty())
      return fail(name, "is said to be linear, but not in which operands",
                  "Write their numbers, counted from 0: 'linear 0'.");
    if (std::any_of(together.begin(), together.end(), [&](size_t i) { return i >= rule.operands.size(); }))
      return fail(name, "is said to be linear in an operand that it does not have", "Operands are counted from 0.");
    const std::set<size_t> operands(together.begin(), together.end());
    if (operands.size() < together.size())
      return fail(name,
                  fmt::format("is said to be linear in {}, which names an operand twice",
                              in_quotes(fmt::format("{}", fmt::join(together, " ")))),
                  "Write each operand once.");
    if (!known.insert(operands).second)
      return fail(
          name, fmt::format("is said to be linear in {} twice", in_quotes(fmt::format("{}", fmt::join(together, " ")))),
          "Leave one of them out.");
  }
}

void ProgramBuilder::check_window(std::string_view name, const Attention& attention) {
  if (has_windows(attention.mask) && attention.window < 1)
    fail(name,
         fmt::format("has a {} mask with a window of {} rows",
                     attention.mask == Mask::kSliding ? "sliding" : "windowed", attention.window),
         "Say how many rows see each other, at least 1: 'mask sliding 128', 'mask windowed 64'.");
}

void ProgramBuilder::check_calculation(OperatorKind kind, std::string_view name, const Calculation& calculation) {
  const Calculation usual;
  const auto belongs = [&](bool is_said, OperatorKind owner, std::string_view word) {
    if (is_said && kind != owner)
      fail(name, fmt::format("an operator of kind {} says '{}'", name_of(kind), word),
           fmt::format("Only one of kind {} does.", name_of(owner)));
  };
  belongs(calculation.function.has_value(), OperatorKind::kElementwise, "does");
  belongs(calculation.factor != usual.factor, OperatorKind::kScale, "factor");
  belongs(calculation.dropout != usual.dropout, OperatorKind::kDropout, "drops");
  if (kind != OperatorKind::kCustom) belongs(calculation.epsilon != usual.epsilon, OperatorKind::kNorm, "epsilon");
  belongs(calculation.top != 0 || calculation.is_normalized, OperatorKind::kSoftmax, "top");
  belongs(!calculation.calls.empty(), OperatorKind::kCustom, "calls");
  if (calculation.top < 0 || (calculation.is_normalized && calculation.top == 0))
    fail(name, fmt::format("keeps the largest {} results", calculation.top), "Keep at least 1: 'top 2'.");
  if (!(calculation.dropout >= 0 && calculation.dropout < 1))
    fail(name, fmt::format("drops with the probability {}", calculation.dropout), "It is at least 0 and below 1.");
  if (!(calculation.epsilon > 0) || !std::isfinite(calculation.epsilon))
    fail(name, fmt::format("has the epsilon {}", calculation.epsilon), "It is above 0.");
  if (!std::isfinite(calculation.factor))
    fail(name, fmt::format("has the factor {}", calculation.factor), "It is a finite number.");
}

void ProgramBuilder::begin_repeat(int64_t count, size_t carried) {
  if (failed()) return;
  if (is_repeating_) return fail("repeat", "stands inside another", "End the first one before.");
  if (count < 1 || count > kMostRepeats)
    return fail("repeat", fmt::format("is done {} times, 1 to {} are possible", count, kMostRepeats), "Correct it.");
  const ProgramValue::Role role = program_.values[carried].role;
  if (role != ProgramValue::Role::kInput && role != ProgramValue::Role::kResult)
    return fail("repeat", fmt::format("carries {}, which is no activation", in_quotes(program_.values[carried].name)),
                "Carry an input or a result.");
  is_repeating_ = true;
  program_.repeats.push_back({.begin = program_.operators.size(), .count = count, .carried_in = carried});
}

void ProgramBuilder::end_repeat(size_t value) {
  if (failed()) return;
  if (!is_repeating_) return fail("end", "ends no repeat", "Leave it out.");
  Repeat& repeat = program_.repeats.back();
  repeat.end = program_.operators.size();
  repeat.carried_out = value;
  is_repeating_ = false;
  if (std::none_of(program_.operators.begin() + static_cast<std::ptrdiff_t>(repeat.begin), program_.operators.end(),
                   [&](const Operator& op) { return op.result == value; }))
    fail("end", fmt::format("ends with {}, which is not made inside", in_quotes(program_.values[value].name)),
         "Name the value that the next time begins with.");
}

Result<Program> ProgramBuilder::finish() {
  if (is_repeating_) fail("repeat", "has no end", "Add 'end VALUE'.");
  if (!failed() && program_.operators.empty()) fail("", "the program has no operator", "Add one.");
  if (error_) return *error_;
  if (std::optional<Error> wrong = find_wrong(program_)) {
    wrong->source = source_;
    return *std::move(wrong);
  }
  return program_;
}

}  // namespace weft
