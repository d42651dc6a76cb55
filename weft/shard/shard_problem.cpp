#include "weft/shard/shard_problem.h"

#include <algorithm>
#include <map>

#include <fmt/format.h>

#include "weft/base/as_double.h"
#include "weft/base/text.h"
#include "weft/program/operator_rules.h"

namespace weft {
namespace {

constexpr size_t kMostOptions = 4096;
constexpr size_t kMostLayouts = 2048;
constexpr size_t kMostStateOptions = 64;

/// Units of a dim of a rule: those of the tensors that have it.
int64_t units_of(const Program& program, const Operator& op, size_t dim) {
  for (size_t i = 0; i <= op.operands.size(); ++i) {
    const bool is_result = i == op.operands.size();
    const RuleTerm& term = is_result ? op.rule.result : op.rule.operands[i];
    const ProgramValue& value = program.values[is_result ? op.result : op.operands[i]];
    for (size_t place = 0; place < term.size(); ++place) {
      if (term[place].size() == 1 && term[place][0] == dim) return program.dims[value.dims[place]].num_units();
    }
  }
  return 1;
}

bool is_weight(const Program& program, size_t value) {
  return program.values[value].role == ProgramValue::Role::kWeight;
}

/// Summands of a weight alone, or of data, help nobody.
bool is_useful(const Program& program, const Operator& op, Choice choice) {
  if (choice.kind != Choice::Kind::kThrough) return true;
  const std::vector<size_t>& set = op.rule.linear[choice.index];
  return std::any_of(set.begin(), set.end(), [&](size_t operand) {
    const ProgramValue::Role role = program.values[op.operands[operand]].role;
    return role == ProgramValue::Role::kInput || role == ProgramValue::Role::kResult;
  });
}

/// Options of which none is better than another in both; the fastest first, and of equals the first.
void keep_best(std::vector<StateOption>& options) {
  std::stable_sort(options.begin(), options.end(), [](const StateOption& a, const StateOption& b) {
    return a.ms != b.ms ? a.ms < b.ms : a.bytes < b.bytes;
  });
  std::vector<StateOption> kept;
  for (StateOption& option : options) {
    if (kept.empty() || option.bytes < kept.back().bytes * (1 - 1e-12)) kept.push_back(std::move(option));
  }
  if (kept.size() > kMostStateOptions) kept.resize(kMostStateOptions);
  options = std::move(kept);
}

std::optional<Error> find_too_many_layers(const Program& program) {
  auto places = std::ssize(program.operators);
  for (const Repeat& repeat : program.repeats) {
    places += (repeat.count - 1) * static_cast<int64_t>(repeat.end - repeat.begin);
    if (places > ShardProblem::kMostPlaces)
      return Error{.field = program.operators[repeat.begin].name,
                   .problem = fmt::format("stands in a repeat of {} layers, with which the program has {} operators or "
                                          "more, counted in each layer; at most {} can be placed",
                                          with_commas(repeat.count), with_commas(places),
                                          with_commas(ShardProblem::kMostPlaces)),
                   .advice = "Give its repeats fewer layers."};
  }
  return std::nullopt;
}

}  // namespace

std::vector<ProgramDim> ShardProblem::dims_of(size_t value) const {
  std::vector<ProgramDim> dims;
  for (const size_t dim : program_.values[value].dims) dims.push_back(program_.dims[dim]);
  return dims;
}

Result<ShardProblem> ShardProblem::create(Program program, ShardSetting setting, const ShardLimits& limits,
                                          ShardObjective objective) {
  ShardProblem problem(std::move(program), std::move(setting), objective);
  if (auto wrong = find_too_many_layers(problem.program_)) return *std::move(wrong);
  problem.is_carried_out_.resize(problem.program_.values.size());
  for (const Repeat& repeat : problem.program_.repeats) problem.is_carried_out_[repeat.carried_out] = true;
  const size_t num_axes = problem.setting_.links.num_axes();
  std::map<std::vector<std::pair<int64_t, int64_t>>, std::shared_ptr<const TransitionPrices>> known;
  for (size_t value = 0; value < problem.program_.values.size(); ++value) {
    const std::vector<ProgramDim> dims = problem.dims_of(value);
    const bool is_alone = is_weight(problem.program_, value) && problem.uses_.readers_of(value).size() <= 1;
    if (is_alone) {
      problem.transitions_.emplace_back();
      continue;
    }
    const size_t count = LayoutCodes(dims.size(), num_axes).count();
    if (count > kMostLayouts)
      return Error{
          .source = "--mesh",
          .problem = fmt::format("the tensor {} has {} layouts on {} axes, at most {} can be searched",
                                 in_quotes(problem.program_.values[value].name), count, num_axes, kMostLayouts),
          .advice = "Join axes."};
    std::vector<std::pair<int64_t, int64_t>> key;
    for (const ProgramDim& dim : dims) key.emplace_back(dim.length, dim.unit);
    std::shared_ptr<const TransitionPrices>& prices = known[key];
    if (!prices)
      prices = std::make_shared<TransitionPrices>(problem.setting_.links, dims, num_bytes(problem.setting_.precision),
                                                  limits.forbidden);
    problem.transitions_.push_back(prices);
  }
  problem.add_sources(limits);
  for (const Operator& op : problem.program_.operators) {
    std::vector<bool>& keeps = problem.keeps_.emplace_back();
    for (size_t operand = 0; operand < op.operands.size(); ++operand)
      keeps.push_back(keeps_operand(problem.program_, op, operand));
  }
  problem.options_.resize(problem.program_.operators.size());
  for (size_t op = 0; op < problem.program_.operators.size(); ++op) {
    if (auto wrong = problem.add_operator(op, limits)) return *std::move(wrong);
  }
  return problem;
}

void ShardProblem::add_sources(const ShardLimits& limits) {
  source_codes_.resize(program_.values.size());
  for (size_t value = 0; value < program_.values.size(); ++value) {
    const ProgramValue::Role role = program_.values[value].role;
    if (role == ProgramValue::Role::kResult || (is_weight(program_, value) && uses_.readers_of(value).size() <= 1))
      continue;
    const std::vector<std::optional<AxisState>>& pins = limits.inputs[value];
    const bool is_pinned = std::any_of(pins.begin(), pins.end(), [](const auto& pin) { return pin.has_value(); });
    // A loader slices data as its readers want it, unless it is told otherwise.
    if (role == ProgramValue::Role::kData && !is_pinned) continue;
    const LayoutCodes& codes = transitions_[value]->codes();
    for (size_t code = 0; code < codes.count(); ++code) {
      const std::vector<AxisState> states = codes.states(code);
      bool fits = true;
      for (size_t axis = 0; axis < states.size(); ++axis) {
        const bool is_alone = setting_.links.grid().size(axis) == 1 && !states[axis].is_replicated();
        fits = fits && !states[axis].is_partial() && !is_alone && (!pins[axis] || *pins[axis] == states[axis]);
      }
      if (fits) source_codes_[value].push_back(code);
    }
  }
}

std::optional<Error> ShardProblem::add_operator(size_t index, const ShardLimits& limits) {
  const Operator& op = program_.operators[index];
  const AxisGrid& grid = setting_.links.grid();
  std::vector<Choices> rows{{}};
  for (size_t axis = 0; axis < grid.num_axes(); ++axis) {
    std::vector<Choice> choices;
    if (const auto& pin = limits.pins[index][axis]) {
      choices = {*pin};
    } else if (grid.size(axis) == 1) {
      choices = {Choice::same()};
    } else {
      for (const Choice choice : choices_of(op.rule)) {
        // Rows that context parallelism has shared out are all attended to where they are.
        const bool is_shared_out =
            setting_.context.cp > 1 && op.kind == OperatorKind::kAttention && is_cut_inside(op.rule, choice);
        if (is_useful(program_, op, choice) && !is_shared_out) choices.push_back(choice);
      }
    }
    std::vector<Choices> longer;
    for (const Choices& row : rows) {
      for (const Choice choice : choices) {
        longer.push_back(row);
        longer.back().push_back(choice);
      }
    }
    if (longer.size() > kMostOptions * 8)
      return Error{.source = "--mesh",
                   .field = op.name,
                   .problem = fmt::format("has more than {} strategies on {}", kMostOptions, grid.text()),
                   .advice = "Join axes, or pin choices."};
    rows = std::move(longer);
  }
  for (const Choices& row : rows) {
    // A rank without any of the work is no use, unless it is asked for.
    bool fits = true;
    for (size_t dim = 0; dim < op.rule.dims.size() && fits; ++dim) {
      int64_t parts = 1;
      bool is_pinned = false;
      for (size_t axis = 0; axis < row.size(); ++axis) {
        if (row[axis] != Choice::cut(dim)) continue;
        parts *= grid.size(axis);
        is_pinned = is_pinned || limits.pins[index][axis].has_value();
      }
      fits = parts == 1 || is_pinned || parts <= units_of(program_, op, dim);
    }
    if (!fits) continue;
    if (auto option = option_of(index, row, limits)) options_[index].push_back(*std::move(option));
  }
  if (options_[index].empty() || options_[index].size() > kMostOptions) {
    return Error{
        .source = "--mesh",
        .field = op.name,
        .problem = options_[index].empty()
                       ? fmt::format("no strategy is left on {}: its result must not be a summand", grid.text())
                       : fmt::format("has {} strategies on {}, at most {} can be searched", options_[index].size(),
                                     grid.text(), kMostOptions),
        .advice = options_[index].empty() ? "Loosen its pins." : "Join axes, or pin choices."};
  }
  return std::nullopt;
}

std::optional<OperatorOption> ShardProblem::option_of(size_t index, const Choices& choices,
                                                      const ShardLimits& limits) const {
  const Operator& op = program_.operators[index];
  std::vector<ChoiceStates> by_axis;
  for (const Choice choice : choices) by_axis.push_back(states_of(op.rule, choice));
  const auto states_at = [&](size_t operand) {
    std::vector<AxisState> states;
    for (const ChoiceStates& axis : by_axis) states.push_back(axis.operands[operand]);
    return states;
  };
  OperatorOption option{.choices = choices,
                        .needs = {},
                        .price = price_operator(program_, op, choices, setting_, setting_.segments),
                        .states = {}};
  std::vector<AxisState> result;
  bool is_partial = false;
  for (const ChoiceStates& axis : by_axis) {
    result.push_back(axis.result);
    is_partial = is_partial || axis.result.is_partial();
  }
  // What leaves the program is whole or in shards; a loss may be a sum over ranks.
  const bool is_output =
      uses_.readers_of(op.result).empty() && !program_.values[op.result].dims.empty() && !is_carried_out_[op.result];
  if (is_output && is_partial) return std::nullopt;
  option.result = transitions_[op.result]->codes().of_value(result);
  option.states.emplace_back();
  for (size_t operand = 0; operand < op.operands.size(); ++operand) {
    const size_t value = op.operands[operand];
    const std::vector<AxisState> states = states_at(operand);
    if (transitions_[value]) {
      const LayoutCodes& codes = transitions_[value]->codes();
      option.needs.push_back({codes.of_value(states), codes.of_gradient(states)});
      continue;
    }
    option.needs.emplace_back();
    if (!objective_.has_states) continue;
    std::vector<StateOption> longer;
    for (const WeightPrice& price :
         price_weight(dims_of(value), states, option.price, limits.stages[value], setting_)) {
      for (const StateOption& held : option.states) {
        longer.push_back(held);
        longer.back().ms += price.exposed_ms + price.update_ms;
        longer.back().bytes += price.state_bytes;
        longer.back().weights.push_back(price);
      }
    }
    keep_best(longer);
    option.states = std::move(longer);
  }
  return option;
}

double ShardProblem::option_ms(const OperatorOption& option) const {
  return microbatches() * (option.price.compute_ms() + option.price.inside_ms);
}

bool ShardProblem::is_priced(size_t value) const {
  if (uses_.readers_of(value).empty() || !transitions_[value]) return false;
  return program_.values[value].role == ProgramValue::Role::kResult || is_source(value);
}

ValuePrice ShardProblem::price_value(size_t value, size_t made,
                                     const std::vector<std::pair<size_t, size_t>>& readers) const {
  const TransitionPrices& prices = *transitions_[value];
  const double overlap = setting_.cluster.efficiency.overlap;
  const bool has_gradient = program_.has_gradient(value);
  ValuePrice price;
  double kept = -1;
  for (size_t i = 0; i < readers.size(); ++i) {
    const auto& [op, choice] = readers[i];
    const std::vector<size_t>& operands = program_.operators[op].operands;
    const OperatorOption& option = options_[op][choice];
    for (size_t operand = 0; operand < operands.size(); ++operand) {
      if (operands[operand] != value) continue;
      const Need& need = option.needs[operand];
      // Readers that want the same share one transition, and what they send back is summed before it goes.
      bool has_value = false, has_both = false;
      for (size_t j = 0; j <= i; ++j) {
        const std::vector<size_t>& others = program_.operators[readers[j].first].operands;
        const OperatorOption& other = options_[readers[j].first][readers[j].second];
        for (size_t k = 0; k < (j == i ? operand : others.size()); ++k) {
          if (others[k] != value) continue;
          has_value = has_value || other.needs[k].value == need.value;
          has_both = has_both || other.needs[k] == need;
        }
      }
      const bool is_kept = keeps_[op][operand];
      // What is kept is what was made. Gathers are done again in the backward, beside other work.
      if (!has_value) price.ms += prices.ms(made, need.value) * (is_kept ? 2 - overlap : 1);
      if (has_gradient && !has_both) price.ms += prices.ms(need.gradient, prices.gradient(made));
      if (!is_kept) continue;
      const double elements = prices.kept_elements(made, need.value);
      kept = kept < 0 ? elements : std::min(kept, elements);
    }
  }
  if (kept > 0 && program_.values[value].role != ProgramValue::Role::kWeight)
    price.bytes = kept * num_bytes(setting_.precision);
  return price;
}

ValuePrice ShardProblem::price_source(size_t value, size_t code) const {
  if (!is_weight(program_, value) || !objective_.has_states) return {};
  const std::vector<AxisState> states = transitions_[value]->codes().states(code);
  const std::vector<ZeroRange> none(states.size(), ZeroRange{0, 0});
  const WeightPrice price = price_weight(dims_of(value), states, {}, none, setting_).front();
  return {.ms = price.update_ms, .bytes = price.state_bytes};
}

}  // namespace weft
