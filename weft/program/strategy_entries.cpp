#include "weft/program/strategy_entries.h"

#include <algorithm>
#include <span>

#include <fmt/format.h>

#include "weft/base/text.h"
#include "weft/program/pattern_names.h"

namespace weft {
namespace {

constexpr size_t kMostEntries = 10'000;
constexpr uint64_t kMostRanks = AxisGrid::kMostPositions;

/// Words that PyTorch's tensor parallelism has for linear layers and for what lies between them.
std::optional<Result<Choice>> pytorch_choice(const Program& program, const Operator& op, const std::string& word) {
  const bool is_column = word == "ColwiseParallel", is_row = word == "RowwiseParallel";
  if (word == "SequenceParallel") {
    if (const auto dim = op.rule.find("s")) return Result<Choice>(Choice::cut(*dim));
    return Result<Choice>(Error{.problem = fmt::format("the rule {} has no dim 's'", in_quotes(op.rule.text())),
                                .advice = "SequenceParallel cuts it."});
  }
  if (!is_column && !is_row) return std::nullopt;
  for (size_t i = 0; i < op.operands.size(); ++i) {
    if (program.values[op.operands[i]].role != ProgramValue::Role::kWeight) continue;
    // Columns are the dim that only weight and result have, rows the one that only weight and input have.
    for (const std::vector<size_t>& parts : op.rule.operands[i]) {
      const size_t dim = parts[0];
      const bool is_summed = op.rule.dims[dim].kind == DimKind::kSum;
      if (is_summed == is_row) return Result<Choice>(Choice::cut(dim));
    }
  }
  return Result<Choice>(
      Error{.problem = fmt::format("the rule {} is none of a linear layer", in_quotes(op.rule.text())),
            .advice = fmt::format("{} is for matrix products and lookups with a weight.", word)});
}

class PinMaker {
 public:
  PinMaker(const Program& program, size_t num_operators, const AxisGrid& grid)
      : program_(program), num_operators_(num_operators), grid_(grid) {
    pins_.choices.assign(program.operators.size(), std::vector<std::optional<Choice>>(grid.num_axes()));
    for (size_t op = 0; op < num_operators; ++op) names_.add(program.operators[op].name, op);
  }

  Result<OperatorPins> run(const std::vector<StrategyEntry>& entries) {
    if (auto error = names_.find_too_many(entries)) return *std::move(error);
    for (const StrategyEntry& entry : entries) {
      if (auto error = add(entry)) {
        error->field = printable(entry.pattern);
        return *std::move(error);
      }
    }
    return std::move(pins_);
  }

 private:
  std::optional<Error> add(const StrategyEntry& entry) {
    const std::vector<size_t> found = names_.fitting(entry.pattern);
    for (const size_t i : found) {
      const Operator& op = program_.operators[i];
      for (const auto& [axis_name, word] : entry.words) {
        const Result<size_t> axis = axis_of(grid_, axis_name);
        if (!axis) return axis.error();
        const auto translated = pytorch_choice(program_, op, word);
        const Result<Choice> choice = translated ? *translated : parse_choice(op.rule, word);
        if (!choice)
          return Error{.problem = fmt::format("{}: {}", op.name, choice.error().problem),
                       .advice = choice.error().advice};
        if (auto error = pin(i, *axis, *choice, entry.pattern)) return error;
      }
    }
    if (!found.empty()) return std::nullopt;
    std::vector<std::string> known;
    for (size_t i = 0; i < num_operators_; ++i) known.push_back(program_.operators[i].name);
    if (known.empty())
      return Error{.problem = fmt::format("no operator of {} fits the pattern", program_.name),
                   .advice = "It has none."};
    return Error{
        .problem = fmt::format("no operator of {} fits the pattern", program_.name),
        .advice = fmt::format("The first are {}.{}",
                              printable(joined_or(std::span(known).first(std::min<size_t>(8, known.size()))), 300),
                              did_you_mean(entry.pattern, known))};
  }

  std::optional<Error> pin(size_t op, size_t axis, Choice choice, const std::string& pattern) {
    std::optional<Choice>& known = pins_.choices[op][axis];
    const Rule& rule = program_.operators[op].rule;
    if (known && *known != choice)
      return Error{.problem = fmt::format("{} is pinned to '{}' on {}, but {} pins it to '{}'",
                                          program_.operators[op].name, text_of(rule, choice), grid_.axes()[axis].name,
                                          in_quotes(pins_.patterns[{op, axis}]), text_of(rule, *known)),
                   .advice = "Leave one of them out."};
    known = choice;
    pins_.patterns.emplace(std::pair{op, axis}, pattern);
    return std::nullopt;
  }

  const Program& program_;
  size_t num_operators_;
  const AxisGrid& grid_;
  PatternNames names_{"operators"};
  OperatorPins pins_;
};

}  // namespace

std::vector<StrategyEntry> read_entries(Fields& fields, std::string_view key) {
  std::vector<StrategyEntry> entries;
  const Json* raw = fields.raw(key);
  if (raw == nullptr) return entries;
  if (!raw->is_object()) {
    fields.complain(key, fmt::format("is {}, expected are patterns with words for axes", describe_value(*raw)),
                    "Write it like '\"*.qkv\": {tp: k}'.");
    return entries;
  }
  const auto word_of = [&](const std::string& pattern, const Json& value) -> std::string {
    if (value.is_string()) return value.get<std::string>();
    if (value.is_number_integer()) return value.dump();
    fields.complain(key, fmt::format("{} has {}, expected is a word", in_quotes(pattern), describe_value(value)),
                    "Words are dims, 'same', 'through' or a stage.");
    return "";
  };
  for (const auto& [pattern, value] : raw->items()) {
    if (entries.size() >= kMostEntries) {
      fields.complain(key, fmt::format("has more than {} entries", kMostEntries), "Use patterns.");
      break;
    }
    StrategyEntry& entry = entries.emplace_back(StrategyEntry{.pattern = pattern, .words = {}});
    if (value.is_object()) {
      for (const auto& [axis, word] : value.items()) entry.words.emplace_back(axis, word_of(pattern, word));
    } else {
      entry.words.emplace_back("", word_of(pattern, value));
    }
  }
  return entries;
}

std::vector<Axis> read_axes(Fields& fields, std::string_view key) {
  std::vector<Axis> axes;
  const Json* mesh = fields.raw(key);
  if (mesh == nullptr) return axes;
  constexpr const char* kMeshAdvice = "Write it like '{tp: 8, dp: 4}'.";
  if (!mesh->is_object()) {
    fields.complain(key, fmt::format("is {}, expected are axes with their sizes", describe_value(*mesh)), kMeshAdvice);
    return axes;
  }
  for (const auto& [axis, size] : mesh->items()) {
    const bool is_size = size.is_number_unsigned() ? size.get<uint64_t>() >= 1 && size.get<uint64_t>() <= kMostRanks
                                                   : size.is_number_integer() && size.get<int64_t>() >= 1 &&
                                                         size.get<int64_t>() <= static_cast<int64_t>(kMostRanks);
    if (!is_size) {
      fields.complain(key,
                      fmt::format("has {} for the axis {}, expected is a whole number from 1 to {}",
                                  describe_value(size), in_quotes(axis), with_commas(AxisGrid::kMostPositions)),
                      kMeshAdvice);
      return {};
    }
    axes.push_back({axis, size.get<int64_t>()});
  }
  return axes;
}

Result<size_t> axis_of(const AxisGrid& grid, const std::string& name) {
  if (name.empty() && grid.num_axes() > 0) {
    // PyTorch's words are about the axis of tensor parallelism.
    const auto tp = grid.find("tp");
    return tp ? *tp : 0;
  }
  if (const auto axis = grid.find(name)) return *axis;
  std::vector<std::string> known;
  for (const Axis& axis : grid.axes()) known.push_back(axis.name);
  return Error{.problem = fmt::format("the mesh {} has no axis {}", grid.text(), in_quotes(name)),
               .advice = fmt::format("Known are {}.{}", joined_or(known), did_you_mean(name, known))};
}

Result<OperatorPins> pins_of(const std::vector<StrategyEntry>& entries, const Program& program, size_t num_operators,
                             const AxisGrid& grid) {
  return PinMaker(program, num_operators, grid).run(entries);
}

}  // namespace weft
