#include "weft/program/strategy_entries.h"

#include <algorithm>
#include <span>

#include <fmt/format.h>

#include "weft/base/pattern.h"
#include "weft/base/text.h"

namespace weft {
namespace {

constexpr size_t kMostEntries = 10'000;

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
  }

  Result<OperatorPins> run(const std::vector<StrategyEntry>& entries) {
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
    bool fits_any = false;
    std::vector<std::string> known;
    for (size_t i = 0; i < num_operators_; ++i) {
      const Operator& op = program_.operators[i];
      known.push_back(op.name);
      if (!fits_pattern(op.name, entry.pattern)) continue;
      fits_any = true;
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
    if (fits_any) return std::nullopt;
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
    if (value.is_number_integer()) return std::to_string(value.get<int64_t>());
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
  const bool is_good = mesh->is_object() && std::all_of(mesh->begin(), mesh->end(), [](const Json& size) {
                         return size.is_number_integer() && size.get<int64_t>() >= 1 && size.get<int64_t>() <= 1 << 24;
                       });
  if (!is_good) {
    fields.complain(key, "is no list of axes with sizes", "Write it like '{tp: 8, dp: 4}'.");
    return axes;
  }
  for (const auto& [axis, size] : mesh->items()) axes.push_back({axis, size.get<int64_t>()});
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
