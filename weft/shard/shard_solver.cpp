#include "weft/shard/shard_solver.h"

#include <algorithm>
#include <limits>

#include "weft/base/check.h"

namespace weft {
namespace {

/// How often a value's price is paid in a step: weights come once, activations with every microbatch.
double times_of(const ShardProblem& problem, size_t value) {
  return problem.program().values[value].role == ProgramValue::Role::kWeight ? 1 : problem.microbatches();
}

/// Options that have a state.
std::vector<std::vector<size_t>> options_in(const AllowedOptions& domain) {
  std::vector<std::vector<size_t>> options(domain.states.size());
  for (size_t op = 0; op < options.size(); ++op) {
    for (size_t option = 0; option < domain.states[op].size(); ++option) {
      if (domain.states[op][option] != 0) options[op].push_back(option);
    }
  }
  return options;
}

}  // namespace

AllowedOptions all_allowed(const ShardProblem& problem) {
  AllowedOptions allowed;
  for (size_t op = 0; op < problem.program().operators.size(); ++op)
    allowed.states.emplace_back(problem.options(op).size(), ~uint64_t{0});
  for (size_t value = 0; value < problem.program().values.size(); ++value)
    allowed.sources.emplace_back(problem.source_codes(value).size(), true);
  return allowed;
}

ShardSolver::ShardSolver(const ShardProblem& problem) : ShardSolver(problem, all_allowed(problem)) {}

ShardSolver::ShardSolver(const ShardProblem& problem, const AllowedOptions& domain)
    : problem_(problem), carried_(problem), options_(options_in(domain)), outside_(make_region(std::nullopt)) {
  for (size_t repeat = 0; repeat < problem.program().repeats.size(); ++repeat) inside_.push_back(make_region(repeat));
  bodies_.resize(inside_.size());
}

ShardSolver::Carried::Carried(const ShardProblem& problem)
    : in(problem.program().values.size()), out(in.size()), read(problem.program().repeats.size()) {
  const Program& program = problem.program();
  for (size_t repeat = 0; repeat < program.repeats.size(); ++repeat) {
    in[program.repeats[repeat].carried_in] = true;
    out[program.repeats[repeat].carried_out] = repeat;
  }
  for (size_t value = 0; value < in.size(); ++value) {
    const std::vector<size_t>& readers = problem.uses().readers_of(value);
    const auto repeat = readers.empty() ? std::nullopt : problem.uses().repeat_of(readers.front());
    if (repeat) read[*repeat].push_back(value);
    if (in[value] || (!readers.empty() && !repeat)) read_outside.push_back(value);
  }
}

size_t ShardSolver::size_of(const Variable& variable) const {
  switch (variable.kind) {
    case Variable::Kind::kOperator:
      return options_[variable.index].size();
    case Variable::Kind::kSource:
      return problem_.source_codes(variable.index).size();
    case Variable::Kind::kCarriedIn:
    case Variable::Kind::kCarriedOut:
      break;
  }
  return problem_.transitions(problem_.program().repeats[variable.index].carried_out).codes().count();
}

size_t ShardSolver::code_of(const Variable& variable, size_t choice) const {
  switch (variable.kind) {
    case Variable::Kind::kOperator:
      return problem_.options(variable.index)[option_of(variable.index, choice)].result;
    case Variable::Kind::kSource:
      return problem_.source_codes(variable.index)[choice];
    case Variable::Kind::kCarriedIn:
    case Variable::Kind::kCarriedOut:
      break;
  }
  return choice;
}

std::optional<size_t> ShardSolver::find(const Region& region, Variable::Kind kind, size_t index) const {
  const auto found = region.places.find({kind, index});
  if (found == region.places.end()) return std::nullopt;
  return found->second;
}

/// The variable outside of all repeats that makes a value.
size_t ShardSolver::maker_of(const Region& region, size_t value) const {
  if (const auto repeat = carried_.out[value]) return *find(region, Variable::Kind::kCarriedOut, *repeat);
  if (problem_.is_source(value)) return *find(region, Variable::Kind::kSource, value);
  return *find(region, Variable::Kind::kOperator, *problem_.uses().maker_of(value));
}

ShardSolver::Region ShardSolver::make_region(std::optional<size_t> repeat) const {
  const Program& program = problem_.program();
  Region region;
  const auto add = [&](Variable::Kind kind, size_t index) {
    region.places.emplace(std::pair{kind, index}, region.variables.size());
    region.variables.push_back({kind, index});
    region.sizes.push_back(size_of(region.variables.back()));
    return region.variables.size() - 1;
  };
  if (repeat) add(Variable::Kind::kCarriedIn, *repeat);
  const size_t begin = repeat ? program.repeats[*repeat].begin : 0;
  const size_t end = repeat ? program.repeats[*repeat].end : program.operators.size();
  for (size_t op = begin; op < end; ++op) {
    if (problem_.uses().repeat_of(op) == repeat) add(Variable::Kind::kOperator, op);
  }
  if (!repeat) {
    for (size_t i = 0; i < program.repeats.size(); ++i) add(Variable::Kind::kCarriedOut, i);
  }
  for (const size_t value : repeat ? carried_.read[*repeat] : carried_.read_outside) {
    const std::vector<size_t>& readers = problem_.uses().readers_of(value);
    const bool is_read_here = !readers.empty() && problem_.uses().repeat_of(readers.front()) == repeat;
    const bool is_carried = carried_.in[value];
    if (problem_.is_source(value)) {
      const bool is_here = is_carried ? !repeat.has_value() : is_read_here;
      if (is_here) add(Variable::Kind::kSource, value);
    }
    if (!is_read_here || !problem_.is_priced(value)) continue;
    if (repeat) {
      if (value == program.repeats[*repeat].carried_in) {
        add_value(region, value, 0);
      } else if (problem_.is_source(value)) {
        add_value(region, value, *find(region, Variable::Kind::kSource, value));
      } else {
        add_value(region, value, *find(region, Variable::Kind::kOperator, *problem_.uses().maker_of(value)));
      }
    } else if (!is_carried) {
      add_value(region, value, maker_of(region, value));
    }
  }
  return region;
}

void ShardSolver::add_value(Region& region, size_t value, size_t maker) const {
  ValueTable table{{maker}, {}, {}};
  const std::vector<size_t>& readers = problem_.uses().readers_of(value);
  double entries = static_cast<double>(region.sizes[maker]);
  for (const size_t reader : readers) {
    table.variables.push_back(*find(region, Variable::Kind::kOperator, reader));
    entries *= static_cast<double>(region.sizes[table.variables.back()]);
  }
  region.is_too_large = region.is_too_large || entries > Elimination::kMostEntries;
  if (region.is_too_large || entries == 0) return;
  std::vector<size_t> places(readers.size(), 0);
  std::vector<std::pair<size_t, size_t>> chosen;
  for (const size_t reader : readers) chosen.emplace_back(reader, option_of(reader, 0));
  const double times = times_of(problem_, value);
  const auto count = static_cast<size_t>(entries);
  table.ms.reserve(count);
  table.bytes.reserve(count);
  for (size_t made = 0; made < region.sizes[maker]; ++made) {
    const size_t code = code_of(region.variables[maker], made);
    while (true) {
      const ValuePrice price = problem_.price_value(value, code, chosen);
      table.ms.push_back(times * price.ms);
      table.bytes.push_back(price.bytes);
      size_t place = chosen.size();
      while (place-- > 0) {
        const bool is_last = ++places[place] == region.sizes[table.variables[place + 1]];
        if (is_last) places[place] = 0;
        chosen[place].second = option_of(readers[place], places[place]);
        if (!is_last) break;
      }
      if (place == std::numeric_limits<size_t>::max()) break;
    }
  }
  region.values.push_back(std::move(table));
}

bool ShardSolver::is_summand_at_the_end(size_t value, size_t code) const {
  const bool is_output = problem_.uses().readers_of(value).empty() && !carried_.in[value];
  const std::vector<AxisState> states = problem_.transitions(value).codes().states(code);
  return is_output && std::any_of(states.begin(), states.end(), [](AxisState state) { return state.is_partial(); });
}

size_t ShardSolver::best_state(size_t op, size_t option, double byte_ms, const AllowedOptions& allowed) const {
  const std::vector<StateOption>& states = problem_.options(op)[option].states;
  size_t best = states.size();
  double least = kNever;
  for (size_t state = 0; state < states.size(); ++state) {
    const double cost = states[state].ms + byte_ms * states[state].bytes;
    if ((allowed.states[op][option] >> state & 1u) != 0 && cost < least) {
      least = cost;
      best = state;
    }
  }
  return best;
}

void ShardSolver::add_costs(const Region& region, double byte_ms, const AllowedOptions& allowed,
                            Elimination& elimination) const {
  for (size_t i = 0; i < region.variables.size(); ++i) {
    const Variable& variable = region.variables[i];
    ChoiceCosts table{{i}, {}};
    for (size_t choice = 0; choice < region.sizes[i]; ++choice) {
      double cost = 0;
      if (variable.kind == Variable::Kind::kOperator) {
        const size_t place = option_of(variable.index, choice);
        const OperatorOption& option = problem_.options(variable.index)[place];
        const size_t state = best_state(variable.index, place, byte_ms, allowed);
        cost = state == option.states.size()
                   ? kNever
                   : problem_.option_ms(option) + option.states[state].ms + byte_ms * option.states[state].bytes;
      } else if (variable.kind == Variable::Kind::kSource) {
        const ValuePrice price = problem_.price_source(variable.index, code_of(variable, choice));
        cost = allowed.sources[variable.index][choice] ? price.ms + byte_ms * price.bytes : kNever;
      } else if (variable.kind == Variable::Kind::kCarriedOut) {
        if (is_summand_at_the_end(problem_.program().repeats[variable.index].carried_out, choice)) cost = kNever;
      }
      table.costs.push_back(cost);
    }
    elimination.add(std::move(table));
  }
  for (const ValueTable& value : region.values) {
    ChoiceCosts table{value.variables, value.ms};
    if (byte_ms > 0) {
      for (size_t i = 0; i < table.costs.size(); ++i) table.costs[i] += byte_ms * value.bytes[i];
    }
    elimination.add(std::move(table));
  }
}

bool ShardSolver::solve_body(size_t index, double byte_ms, const AllowedOptions& allowed) {
  const Program& program = problem_.program();
  const Repeat& repeat = program.repeats[index];
  const Region& region = inside_[index];
  Body& body = bodies_[index];
  body.elimination = Elimination(region.sizes);
  add_costs(region, byte_ms, allowed, body.elimination);
  const size_t last = *find(region, Variable::Kind::kOperator, *problem_.uses().maker_of(repeat.carried_out));
  if (!body.elimination.run({0, last})) return false;
  const size_t count = region.sizes[0], num_last = region.sizes[last];
  std::vector<double> costs(count * count, kNever);
  body.last.assign(count * count, 0);
  for (size_t before = 0; before < count; ++before) {
    for (size_t choice = 0; choice < num_last; ++choice) {
      const size_t place = before * count + code_of(region.variables[last], choice);
      const double cost = body.elimination.remaining().costs[before * num_last + choice];
      if (cost >= costs[place]) continue;
      costs[place] = cost;
      body.last[place] = static_cast<uint32_t>(choice);
    }
  }
  body.power = std::make_unique<MinPlusPower>(count, std::move(costs), repeat.count);
  return true;
}

ChoiceCosts ShardSolver::repeat_costs(const Region& region, size_t index) const {
  const size_t before = maker_of(region, problem_.program().repeats[index].carried_in);
  const size_t after = *find(region, Variable::Kind::kCarriedOut, index);
  ChoiceCosts table{{before, after}, {}};
  for (size_t from = 0; from < region.sizes[before]; ++from) {
    for (size_t to = 0; to < region.sizes[after]; ++to)
      table.costs.push_back(bodies_[index].power->cost(code_of(region.variables[before], from), to));
  }
  return table;
}

void ShardSolver::read_choices(const Region& region, const std::vector<size_t>& choices, double byte_ms,
                               const AllowedOptions& allowed, ShardAssignment& assignment) const {
  for (size_t i = 0; i < region.variables.size(); ++i) {
    const Variable& variable = region.variables[i];
    if (variable.kind == Variable::Kind::kSource) {
      assignment.sources[variable.index].push_back(code_of(variable, choices[i]));
    } else if (variable.kind == Variable::Kind::kOperator) {
      const size_t option = option_of(variable.index, choices[i]);
      assignment.options[variable.index].push_back(option);
      assignment.states[variable.index].push_back(best_state(variable.index, option, byte_ms, allowed));
    }
  }
}

void ShardSolver::read_body(size_t index, size_t before, size_t after, double byte_ms, const AllowedOptions& allowed,
                            ShardAssignment& assignment) const {
  const Program& program = problem_.program();
  const Region& region = inside_[index];
  const Body& body = bodies_[index];
  const size_t last =
      *find(region, Variable::Kind::kOperator, *problem_.uses().maker_of(program.repeats[index].carried_out));
  const std::vector<size_t> path = body.power->path(before, after);
  for (size_t time = 0; time + 1 < path.size(); ++time) {
    std::vector<size_t> choices(region.variables.size(), 0);
    choices[0] = path[time];
    choices[last] = body.last[path[time] * region.sizes[0] + path[time + 1]];
    body.elimination.complete(choices);
    read_choices(region, choices, byte_ms, allowed, assignment);
  }
}

std::optional<ShardSolver::Solved> ShardSolver::solve(double byte_ms, const AllowedOptions& allowed) {
  failure_ = Failure::kNothingAllowed;
  if (std::any_of(options_.begin(), options_.end(), [](const auto& options) { return options.empty(); }))
    return std::nullopt;
  failure_ = Failure::kTooLarge;
  if (outside_.is_too_large ||
      std::any_of(inside_.begin(), inside_.end(), [](const Region& region) { return region.is_too_large; }))
    return std::nullopt;
  for (size_t repeat = 0; repeat < inside_.size(); ++repeat) {
    if (!solve_body(repeat, byte_ms, allowed)) return std::nullopt;
  }
  Elimination elimination(outside_.sizes);
  add_costs(outside_, byte_ms, allowed, elimination);
  for (size_t repeat = 0; repeat < inside_.size(); ++repeat) elimination.add(repeat_costs(outside_, repeat));
  if (!elimination.run({})) return std::nullopt;
  const double cost = elimination.remaining().costs.front();
  failure_ = Failure::kNothingAllowed;
  if (!(cost < kNever)) return std::nullopt;
  failure_ = Failure::kNone;
  std::vector<size_t> choices(outside_.variables.size(), 0);
  elimination.complete(choices);
  Solved solved{.cost = cost, .assignment = {}};
  const Program& program = problem_.program();
  solved.assignment.options.resize(program.operators.size());
  solved.assignment.states.resize(program.operators.size());
  solved.assignment.sources.resize(program.values.size());
  read_choices(outside_, choices, byte_ms, allowed, solved.assignment);
  for (size_t repeat = 0; repeat < inside_.size(); ++repeat) {
    const size_t before = maker_of(outside_, program.repeats[repeat].carried_in);
    const size_t after = *find(outside_, Variable::Kind::kCarriedOut, repeat);
    read_body(repeat, code_of(outside_.variables[before], choices[before]), choices[after], byte_ms, allowed,
              solved.assignment);
  }
  return solved;
}

ShardTotals evaluate(const ShardProblem& problem, const ShardAssignment& assignment) {
  const Program& program = problem.program();
  const ProgramUses& uses = problem.uses();
  ShardTotals totals;
  const auto code_at = [&](size_t op, size_t time) { return problem.options(op)[assignment.options[op][time]].result; };
  for (size_t op = 0; op < program.operators.size(); ++op) {
    for (size_t time = 0; time < assignment.options[op].size(); ++time) {
      const OperatorOption& option = problem.options(op)[assignment.options[op][time]];
      const StateOption& state = option.states[assignment.states[op][time]];
      totals.compute_ms += problem.microbatches() * option.price.compute_ms();
      totals.inside_ms += problem.microbatches() * option.price.inside_ms;
      totals.state_ms += state.ms;
      totals.state_bytes += state.bytes;
    }
  }
  /// The layout in which a value is, before the given time of the repeat that reads it.
  const auto made_code = [&](size_t value, std::optional<size_t> repeat, size_t time) {
    if (repeat && program.repeats[*repeat].carried_in == value && time > 0)
      value = program.repeats[*repeat].carried_out, --time;
    if (problem.is_source(value))
      return assignment.sources[value][std::min(time, assignment.sources[value].size() - 1)];
    const size_t op = *uses.maker_of(value);
    const size_t last = assignment.options[op].size() - 1;
    // Read from outside, a repeat's value is that of its last time.
    return code_at(op, uses.repeat_of(op) == repeat ? std::min(time, last) : last);
  };
  for (size_t value = 0; value < program.values.size(); ++value) {
    if (problem.is_source(value)) {
      for (const size_t code : assignment.sources[value]) {
        const ValuePrice held = problem.price_source(value, code);
        totals.state_ms += held.ms;
        totals.state_bytes += held.bytes;
      }
    }
    if (!problem.is_priced(value)) continue;
    const std::vector<size_t>& readers = uses.readers_of(value);
    const std::optional<size_t> repeat = uses.repeat_of(readers.front());
    for (size_t time = 0; time < assignment.options[readers.front()].size(); ++time) {
      std::vector<std::pair<size_t, size_t>> chosen;
      for (const size_t reader : readers) chosen.emplace_back(reader, assignment.options[reader][time]);
      const ValuePrice price = problem.price_value(value, made_code(value, repeat, time), chosen);
      totals.transition_ms += times_of(problem, value) * price.ms;
      totals.kept_bytes += price.bytes;
    }
  }
  return totals;
}

}  // namespace weft
