#include "weft/meaning/strategy.h"

#include <algorithm>
#include <map>

#include <fmt/format.h>

#include "weft/base/text.h"
#include "weft/program/pattern_names.h"

namespace weft {
namespace {

class LimitMaker {
 public:
  LimitMaker(const StrategyFile& strategy, const Program& program, const AxisGrid& grid)
      : strategy_(strategy), program_(program), grid_(grid), limits_(ShardLimits::none(program, grid.num_axes())) {}

  Result<ShardLimits> run(ShardMode mode) {
    if (!strategy_.program.empty()) check_program();
    limits_.forbidden = strategy_.forbidden;
    pin_operators();
    pin_inputs();
    set_stages();
    if (strategy_.full_batch) read_whole();
    if (mode == ShardMode::kData) cut_samples();
    if (mode == ShardMode::kExplicit) check_all_pinned();
    if (error_) return *error_;
    return limits_;
  }

 private:
  static bool is_input(ProgramValue::Role role) {
    return role == ProgramValue::Role::kInput || role == ProgramValue::Role::kData;
  }
  static bool is_weight(ProgramValue::Role role) { return role == ProgramValue::Role::kWeight; }

  void fail(const std::string& field, const std::string& problem, const std::string& advice) {
    if (!error_) error_ = Error{.source = strategy_.source, .field = field, .problem = problem, .advice = advice};
  }

  void check_program() {
    const std::vector<std::string> own = signature_of(program_);
    for (size_t i = 0; i < std::max(own.size(), strategy_.program.size()); ++i) {
      const std::string theirs = i < strategy_.program.size() ? strategy_.program[i] : "nothing";
      const std::string ours = i < own.size() ? own[i] : "nothing";
      if (theirs == ours) continue;
      return fail("program",
                  fmt::format("the strategy is of another program: operator {} is {} there and {} here", i,
                              in_quotes(theirs), in_quotes(ours)),
                  "Take the strategy of this program, or leave 'program' out to use its patterns.");
    }
  }

  std::optional<size_t> axis_named(const std::string& field, const std::string& name) {
    const Result<size_t> axis = axis_of(grid_, name);
    if (axis) return *axis;
    fail(field, axis.error().problem, axis.error().advice);
    return std::nullopt;
  }

  void pin_operators() {
    Result<OperatorPins> pins = pins_of(strategy_.operators, program_, program_.operators.size(), grid_);
    if (!pins) return fail("operators." + pins.error().field, pins.error().problem, pins.error().advice);
    limits_.pins = std::move(pins->choices);
    first_pattern_ = std::move(pins->patterns);
  }

  void pin_inputs() {
    PatternNames names("inputs");
    for (size_t i = 0; i < program_.values.size(); ++i) {
      if (is_input(program_.values[i].role)) names.add(program_.values[i].name, i);
    }
    if (const auto error = names.find_too_many(strategy_.inputs))
      return fail("inputs." + error->field, error->problem, error->advice);
    for (const StrategyEntry& entry : strategy_.inputs) pin_inputs(entry, names.fitting(entry.pattern));
  }

  void pin_inputs(const StrategyEntry& entry, const std::vector<size_t>& fitting) {
    const std::string field = fmt::format("inputs.{}", printable(entry.pattern));
    for (const size_t i : fitting) {
      const ProgramValue& value = program_.values[i];
      for (const auto& [axis_name, word] : entry.words) {
        const auto axis = axis_named(field, axis_name);
        if (!axis) return;
        std::optional<AxisState> state;
        if (word == "same") state = AxisState::replicated();
        std::vector<std::string> dims;
        for (size_t place = 0; place < value.dims.size(); ++place) {
          dims.push_back(program_.dims[value.dims[place]].name);
          if (dims.back() == word) state = AxisState::shard(place);
        }
        if (!state)
          return fail(field, fmt::format("{} has no dim {}", value.name, in_quotes(word)),
                      fmt::format("Its dims are {}; 'same' leaves it whole.", joined_or(dims)));
        std::optional<AxisState>& given = limits_.inputs[i][*axis];
        if (given && *given != *state)
          return fail(
              field,
              fmt::format("{} is {} on {}, but {} makes it {}", value.name, layout_word(value, *state),
                          grid_.axes()[*axis].name, in_quotes(input_pattern_[{i, *axis}]), layout_word(value, *given)),
              "Leave one of them out.");
        given = state;
        input_pattern_.emplace(std::pair{i, *axis}, entry.pattern);
      }
    }
    if (fitting.empty())
      fail(field, fmt::format("no input of {} fits the pattern", program_.name), known_names(is_input, entry.pattern));
  }

  std::string layout_word(const ProgramValue& value, const AxisState& state) const {
    return state.is_shard() ? fmt::format("in shards of '{}'", program_.dims[value.dims[state.dim]].name) : "whole";
  }

  /// The names that a pattern could have meant.
  template <typename IsMeant>
  std::string known_names(const IsMeant& is_meant, const std::string& pattern) const {
    std::vector<std::string> known;
    for (const ProgramValue& value : program_.values) {
      if (is_meant(value.role)) known.push_back(value.name);
    }
    if (known.empty()) return "It has none.";
    return fmt::format("{} {}.{}", known.size() > 8 ? "The first are" : "Known are",
                       printable(joined_or(std::span(known).first(std::min<size_t>(8, known.size()))), 300),
                       did_you_mean(pattern, known));
  }

  void set_stages() {
    PatternNames names("weights");
    for (size_t i = 0; i < program_.values.size(); ++i) {
      if (is_weight(program_.values[i].role)) names.add(program_.values[i].name, i);
    }
    if (const auto error = names.find_too_many(strategy_.zero))
      return fail("zero." + error->field, error->problem, error->advice);
    for (const StrategyEntry& entry : strategy_.zero) set_stages(entry, names.fitting(entry.pattern));
  }

  void set_stages(const StrategyEntry& entry, const std::vector<size_t>& fitting) {
    const std::string field = fmt::format("zero.{}", printable(entry.pattern));
    for (const size_t i : fitting) {
      for (const auto& [axis_name, word] : entry.words) {
        const bool is_stage = word.size() == 1 && word[0] >= '0' && word[0] <= '3';
        if (!is_stage) return fail(field, fmt::format("{} is no stage", in_quotes(word)), "Stages are 0 to 3.");
        const int64_t stage = word[0] - '0';
        for (size_t axis = 0; axis < grid_.num_axes(); ++axis) {
          if (!axis_name.empty() && grid_.axes()[axis].name != axis_name) continue;
          const auto [given, is_new] = stage_pattern_.emplace(std::pair{i, axis}, entry.pattern);
          if (!is_new && limits_.stages[i][axis].least != stage)
            return fail(field,
                        fmt::format("{} has stage {} on {}, but {} gives it {}", program_.values[i].name, stage,
                                    grid_.axes()[axis].name, in_quotes(given->second), limits_.stages[i][axis].least),
                        "Leave one of them out.");
          limits_.stages[i][axis] = {stage, stage};
        }
        if (!axis_name.empty() && !axis_named(field, axis_name)) return;
      }
    }
    if (fitting.empty())
      fail(field, fmt::format("no weight of {} fits the pattern", program_.name),
           known_names(is_weight, entry.pattern));
  }

  void read_whole() {
    for (size_t i = 0; i < program_.values.size(); ++i) {
      if (program_.values[i].role != ProgramValue::Role::kData) continue;
      for (size_t axis = 0; axis < grid_.num_axes(); ++axis) {
        std::optional<AxisState>& state = limits_.inputs[i][axis];
        if (state && state->is_shard())
          return fail(
              "full_batch",
              fmt::format("has every rank read all of {}, but 'inputs' has it {} on {}", program_.values[i].name,
                          layout_word(program_.values[i], *state), grid_.axes()[axis].name),
              "Leave one of them out.");
        state = AxisState::replicated();
      }
    }
  }

  void cut_samples() {
    const std::string samples = sample_dim(program_);
    for (size_t i = 0; i < program_.operators.size(); ++i) {
      const Operator& op = program_.operators[i];
      const auto dim = op.rule.find(samples);
      const Choice choice = dim && op.rule.dims[*dim].kind != DimKind::kWhole ? Choice::cut(*dim) : rows_choice(op);
      for (size_t axis = 0; axis < grid_.num_axes(); ++axis) {
        const Choice own = grid_.size(axis) == 1 ? Choice::same() : choice;
        const std::optional<Choice>& pin = limits_.pins[i][axis];
        if (pin && *pin != own)
          return fail(fmt::format("operators.{}", printable(first_pattern_[{i, axis}])),
                      fmt::format("{} is pinned to '{}' on {}, but in mode data it does '{}'", op.name,
                                  text_of(op.rule, *pin), grid_.axes()[axis].name, text_of(op.rule, own)),
                      "Give '--mode semi' to keep pins, or leave it out.");
        limits_.pins[i][axis] = own;
      }
    }
  }

  /// Experts have rows of all samples.
  static Choice rows_choice(const Operator& op) {
    const auto rows = op.rule.find("c");
    return rows ? Choice::cut(*rows) : Choice::same();
  }

  void check_all_pinned() {
    for (size_t i = 0; i < program_.operators.size(); ++i) {
      for (size_t axis = 0; axis < grid_.num_axes(); ++axis) {
        if (limits_.pins[i][axis] || grid_.size(axis) == 1) continue;
        return fail("operators",
                    fmt::format("{} has no choice on {}, but all is given in mode explicit", program_.operators[i].name,
                                grid_.axes()[axis].name),
                    "Pin it, or give '--mode semi' to have the rest completed.");
      }
    }
  }

  const StrategyFile& strategy_;
  const Program& program_;
  const AxisGrid& grid_;
  ShardLimits limits_;
  /// By operator or value and axis: the first pattern that said something of it.
  std::map<std::pair<size_t, size_t>, std::string> first_pattern_, input_pattern_, stage_pattern_;
  std::optional<Error> error_;
};

}  // namespace

ShardLimits ShardLimits::none(const Program& program, size_t num_axes) {
  ShardLimits limits;
  limits.pins.assign(program.operators.size(), std::vector<std::optional<Choice>>(num_axes));
  limits.inputs.assign(program.values.size(), std::vector<std::optional<AxisState>>(num_axes));
  limits.stages.assign(program.values.size(), std::vector<ZeroRange>(num_axes));
  return limits;
}

std::string_view name_of(ShardSearch search) {
  switch (search) {
    case ShardSearch::kExact:
      return "exact";
    case ShardSearch::kRecursive:
      return "recursive";
    case ShardSearch::kPropagate:
      return "propagate";
  }
  return "";
}

std::string sample_dim(const Program& program) {
  if (program.find_dim("b")) return "b";
  for (const ProgramValue& value : program.values) {
    const bool is_input = value.role == ProgramValue::Role::kInput || value.role == ProgramValue::Role::kData;
    if (is_input && !value.dims.empty()) return program.dims[value.dims[0]].name;
  }
  return "b";
}

std::vector<std::string> signature_of(const Program& program) {
  std::vector<std::string> lines;
  for (const Operator& op : program.operators) lines.push_back(fmt::format("{}: {}", op.name, op.rule.text()));
  return lines;
}

Result<ShardLimits> limits_of(const StrategyFile& strategy, ShardMode mode, const Program& program,
                              const AxisGrid& grid) {
  return LimitMaker(strategy, program, grid).run(mode);
}

}  // namespace weft
