#include "weft/cli/shard_text.h"

#include <algorithm>
#include <cmath>
#include <map>

#include <fmt/format.h>

#include "weft/base/text.h"
#include "weft/base/units.h"
#include "weft/cli/table.h"

namespace weft {
namespace {

/// One transition of a value to a reader, at one time of its repeat.
struct ShownTransition {
  std::string value;
  std::string reader;
  std::string from, to;  ///< layouts
  std::vector<PricedStep> forward, adjoint;
  double bytes = 0;  ///< that a rank has of the tensor in the steps that communicate
  double ms = 0;     ///< a microbatch
};

/// An operator in those layers of its repeat that do the same; outside of repeats there is one.
struct ShownOperator {
  size_t op = 0;
  std::vector<size_t> times;
};

class ShardTable {
 public:
  explicit ShardTable(const ShardReport& report)
      : report_(report),
        problem_(report.problem),
        program_(problem_.program()),
        grid_(problem_.setting().links.grid()) {}

  const std::vector<size_t>& chosen(size_t op) const { return report_.solution.assignment.options[op]; }
  const OperatorOption& option(const ShownOperator& row) const {
    return problem_.options(row.op)[chosen(row.op)[row.times.front()]];
  }
  const StateOption& held(const ShownOperator& row) const {
    return option(row).states[report_.solution.assignment.states[row.op][row.times.front()]];
  }

  /// Layers of a repeat that do the same with an operator, and take what it reads from the same layouts, are one row.
  std::vector<ShownOperator> rows() const {
    std::vector<ShownOperator> rows;
    for (size_t op = 0; op < program_.operators.size(); ++op) {
      std::map<std::vector<size_t>, size_t> known;
      for (size_t time = 0; time < chosen(op).size(); ++time) {
        std::vector<size_t> what{chosen(op)[time], report_.solution.assignment.states[op][time]};
        for (const size_t value : program_.operators[op].operands) {
          if (problem_.is_priced(value)) what.push_back(made_code(value, op, time));
        }
        const auto [place, is_new] = known.emplace(std::move(what), rows.size());
        if (is_new) rows.push_back({.op = op, .times = {}});
        rows[place->second].times.push_back(time);
      }
    }
    return rows;
  }

  /// Whether some layers of its repeat do something else.
  bool is_part(const ShownOperator& row) const { return row.times.size() < chosen(row.op).size(); }

  /// "0-11, 14".
  static std::string layers_text(const ShownOperator& row) {
    std::string text;
    for (size_t i = 0; i < row.times.size();) {
      size_t last = i;
      while (last + 1 < row.times.size() && row.times[last + 1] == row.times[last] + 1) ++last;
      text += fmt::format("{}{}", text.empty() ? "" : ", ", row.times[i]);
      if (last > i) text += fmt::format("-{}", row.times[last]);
      i = last + 1;
    }
    return text;
  }

  std::string choice_text(const ShownOperator& row) const {
    std::string text;
    for (size_t axis = 0; axis < grid_.num_axes(); ++axis)
      text += fmt::format("{}{} {}", axis > 0 ? ", " : "", grid_.axes()[axis].name,
                          text_of(program_.operators[row.op].rule, option(row).choices[axis]));
    return text;
  }

  std::string layout_text(size_t value, const std::vector<AxisState>& states) const {
    std::string text;
    for (size_t axis = 0; axis < states.size(); ++axis) {
      const std::string state = states[axis].is_shard()
                                    ? program_.dims[program_.values[value].dims[states[axis].dim]].name
                                : states[axis].is_partial()                  ? "+"
                                : states[axis].spread == Spread::kReplicated ? "="
                                                                             : "=+";
      text += fmt::format("{}{}:{}", axis > 0 ? " " : "", grid_.axes()[axis].name, state);
    }
    return text;
  }

  std::vector<AxisState> need_states(const ShownOperator& row, size_t operand) const {
    std::vector<AxisState> states;
    for (const Choice choice : option(row).choices)
      states.push_back(states_of(program_.operators[row.op].rule, choice).operands[operand]);
    return states;
  }

  /// The layout in which a reader finds a value, in one layer of its repeat.
  size_t made_code(size_t value, size_t reader, size_t time) const {
    const auto repeat = problem_.uses().repeat_of(reader);
    if (repeat && program_.repeats[*repeat].carried_in == value && time > 0) {
      const size_t op = *problem_.uses().maker_of(program_.repeats[*repeat].carried_out);
      return problem_.options(op)[chosen(op)[time - 1]].result;
    }
    if (problem_.is_source(value)) {
      const std::vector<size_t>& codes = report_.solution.assignment.sources[value];
      return codes[std::min(time, codes.size() - 1)];
    }
    const size_t op = *problem_.uses().maker_of(value);
    return problem_.options(op)[chosen(op)[problem_.uses().repeat_of(op) == repeat ? time : chosen(op).size() - 1]]
        .result;
  }

  std::vector<ShownTransition> transitions(const ShownOperator& row) const {
    std::vector<ShownTransition> shown;
    const Operator& reader = program_.operators[row.op];
    for (size_t operand = 0; operand < reader.operands.size(); ++operand) {
      const size_t value = reader.operands[operand];
      if (!problem_.is_priced(value)) continue;
      const TransitionPrices& prices = problem_.transitions(value);
      const size_t made = made_code(value, row.op, row.times.front());
      const std::vector<AxisState> needs = need_states(row, operand);
      const Need need = option(row).needs[operand];
      ShownTransition one{.value = program_.values[value].name,
                          .reader = reader.name,
                          .from = layout_text(value, prices.codes().states(made)),
                          .to = layout_text(value, needs),
                          .forward = prices.steps(made, need.value),
                          .adjoint = {}};
      if (program_.has_gradient(value))
        one.adjoint = prices.steps(need.gradient, prices.codes().of_gradient(prices.codes().states(made)));
      for (const auto* steps : {&one.forward, &one.adjoint}) {
        for (const PricedStep& step : *steps) {
          one.ms += step.ms;
          if (is_collective(step.kind)) one.bytes += step.bytes;
        }
      }
      if (!one.forward.empty() || !one.adjoint.empty()) shown.push_back(std::move(one));
    }
    return shown;
  }

  std::string steps_text(const std::vector<PricedStep>& steps) const {
    std::string text;
    for (const PricedStep& step : steps) {
      std::string axes;
      for (size_t axis = 0; axis < grid_.num_axes(); ++axis) {
        if ((step.axes >> axis & 1u) != 0) axes += (axes.empty() ? "" : "+") + grid_.axes()[axis].name;
      }
      text += fmt::format("{}{} {}", text.empty() ? "" : ", ", step_name(step.kind), axes);
    }
    return text.empty() ? "-" : text;
  }

  /// How much of the communication of an operator's weights hides behind its computing.
  std::string hidden_text(const ShownOperator& row) const {
    double all = 0, exposed = 0;
    for (const WeightPrice& weight : held(row).weights) {
      all += weight.communication_ms;
      exposed += weight.exposed_ms;
    }
    return all > 0 ? format_percent(1 - exposed / all) : "-";
  }

  std::string stages_text(const ShownOperator& row) const {
    std::string text;
    for (const WeightPrice& weight : held(row).weights) {
      std::string stages;
      for (const int64_t stage : weight.stages) stages += (stages.empty() ? "" : "/") + std::to_string(stage);
      if (text.empty()) text = stages;
    }
    return text.empty() ? "-" : text;
  }

  std::string result_text(const ShownOperator& row) const {
    const size_t value = program_.operators[row.op].result;
    return layout_text(value, problem_.transitions(value).codes().states(option(row).result));
  }

  std::string text() const {
    Table table;
    std::vector<std::string> header{"operator", "times",   "choice",     "in", "out",   "zero",
                                    "forward",  "adjoint", "MiB a rank", "ms", "hidden"};
    table.add(header);
    table.add_rule();
    for (const ShownOperator& row : rows()) {
      const Operator& op = program_.operators[row.op];
      std::string in, forward, adjoint;
      double bytes = 0, ms = 0;
      for (const ShownTransition& one : transitions(row)) {
        forward += (forward.empty() ? "" : "; ") + steps_text(one.forward);
        adjoint += (adjoint.empty() ? "" : "; ") + steps_text(one.adjoint);
        bytes += one.bytes;
        ms += one.ms;
      }
      for (size_t operand = 0; operand < op.operands.size(); ++operand) {
        if (program_.values[op.operands[operand]].role == ProgramValue::Role::kWeight) continue;
        in += (in.empty() ? "" : " | ") + layout_text(op.operands[operand], need_states(row, operand));
      }
      ms += option(row).price.compute_ms() + option(row).price.inside_ms;
      const std::string name = is_part(row) ? fmt::format("{} [{}]", op.name, layers_text(row)) : op.name;
      table.add({name, std::to_string(row.times.size()), choice_text(row), in, result_text(row), stages_text(row),
                 forward.empty() ? "-" : forward, adjoint.empty() ? "-" : adjoint,
                 bytes > 0 ? fmt::format("{:.1f}", bytes / (1024.0 * 1024.0)) : "-", fmt::format("{:.4f}", ms),
                 hidden_text(row)});
    }
    return table.text();
  }

 private:
  const ShardReport& report_;
  const ShardProblem& problem_;
  const Program& program_;
  const AxisGrid& grid_;
};

}  // namespace

namespace {

std::string with_count(size_t count, const char* what) {
  return fmt::format("{} {}{}", count, what, count == 1 ? "" : "s");
}

}  // namespace

std::string to_text(const ShardReport& report) {
  const ShardTable table(report);
  const ShardTotals& totals = report.solution.totals;
  std::string text = table.text();
  text +=
      fmt::format("{} on {}: {:.4f} ms a step (compute {:.4f}, inside {:.4f}, redistribution {:.4f}, weights {:.4f})\n",
                  report.problem.program().name, report.problem.setting().links.grid().text(), totals.ms(),
                  totals.compute_ms, totals.inside_ms, totals.transition_ms, totals.state_ms);
  text += fmt::format("a rank holds {:.3f} GiB: weights, gradients and states {:.3f}, kept for the backward {:.3f}\n",
                      totals.bytes() / kGiB, totals.state_bytes / kGiB, totals.kept_bytes / kGiB);
  text += fmt::format("mode {}, search {}: {}\n", name_of(report.mode), name_of(report.search),
                      report.solution.is_optimal ? "optimal"
                                                 : fmt::format("not proven optimal, at most {} slower than the best",
                                                               format_percent(report.solution.gap())));
  for (const PinPrice& pin : report.pins)
    text += fmt::format("pin {}: {} {:.4f} ms\n", pin.name, pin.ms < -5e-5 ? "saves" : "costs", std::abs(pin.ms));
  if (report.num_pins_left > 0)
    text += fmt::format("pins of {} are not priced\n", with_count(report.num_pins_left, "further operator"));
  if (report.verified) {
    const ProgramCheckReport& run = *report.verified;
    text += fmt::format(
        "run on {} ranks: {} and {} are one rank's (largest difference {:.1e}); {} bytes moved in fp64, as planned\n",
        run.ranks, with_count(run.outputs, "output"), with_count(run.gradients, "gradient"), run.largest_difference,
        with_commas(run.bytes_moved));
  }
  if (!report.explains) return text;
  text += "\nlayouts: 'tp:h' is in shards of h, '+' a summand, '=' whole, '=+' whole with a partial gradient.\n";
  for (const ShownOperator& row : table.rows()) {
    for (const ShownTransition& one : table.transitions(row)) {
      text += fmt::format("{} -> {}{}: {} to {}: forward {}, adjoint {} ({:.4f} ms)\n", one.value, one.reader,
                          table.is_part(row) ? fmt::format(" [{}]", ShardTable::layers_text(row)) : "", one.from,
                          one.to, table.steps_text(one.forward), table.steps_text(one.adjoint), one.ms);
    }
  }
  return text;
}

Json to_json(const ShardReport& report) {
  const ShardTable table(report);
  const Program& program = report.problem.program();
  const AxisGrid& grid = report.problem.setting().links.grid();
  const ShardTotals& totals = report.solution.totals;
  Json operators = Json::array(), transitions = Json::array(), pins = Json::array();
  for (const ShownOperator& row : table.rows()) {
    const Operator& op = program.operators[row.op];
    Json choice = Json::object();
    for (size_t axis = 0; axis < grid.num_axes(); ++axis)
      choice[grid.axes()[axis].name] = text_of(op.rule, table.option(row).choices[axis]);
    Json entry = {{"name", op.name},
                  {"rule", op.rule.text()},
                  {"times", row.times.size()},
                  {"choice", choice},
                  {"compute_ms", table.option(row).price.compute_ms()},
                  {"inside_ms", table.option(row).price.inside_ms}};
    if (table.is_part(row)) entry["layers"] = row.times;
    Json weights = Json::array();
    for (const WeightPrice& weight : table.held(row).weights) {
      Json stages = Json::object();
      for (size_t axis = 0; axis < grid.num_axes(); ++axis) stages[grid.axes()[axis].name] = weight.stages[axis];
      weights.push_back({{"zero", stages},
                         {"communication_ms", weight.communication_ms},
                         {"exposed_ms", weight.exposed_ms},
                         {"state_bytes", weight.state_bytes}});
    }
    if (!weights.empty()) entry["weights"] = weights;
    operators.push_back(entry);
    for (const ShownTransition& one : table.transitions(row)) {
      transitions.push_back({{"value", one.value},
                             {"times", row.times.size()},
                             {"reader", one.reader},
                             {"from", one.from},
                             {"to", one.to},
                             {"forward", table.steps_text(one.forward)},
                             {"adjoint", table.steps_text(one.adjoint)},
                             {"bytes", one.bytes},
                             {"ms", one.ms}});
    }
  }
  for (const PinPrice& pin : report.pins) pins.push_back({{"operator", pin.name}, {"ms", pin.ms}});
  Json json = {{"predicted_ms", totals.ms()},
               {"compute_ms", totals.compute_ms},
               {"inside_ms", totals.inside_ms},
               {"transition_ms", totals.transition_ms},
               {"weights_ms", totals.state_ms},
               {"memory_gib", totals.bytes() / kGiB},
               {"optimal", report.solution.is_optimal},
               {"gap", report.solution.gap()},
               {"bound_ms", report.solution.bound_ms},
               {"search_ms", report.search_ms},
               {"mode", name_of(report.mode)},
               {"search", name_of(report.search)},
               {"operators", operators},
               {"transitions", transitions},
               {"pins", pins},
               {"pins_not_priced", report.num_pins_left}};
  if (report.verified) {
    json["verified"] = {{"ranks", report.verified->ranks},
                        {"outputs", report.verified->outputs},
                        {"gradients", report.verified->gradients},
                        {"largest_difference", report.verified->largest_difference},
                        {"bytes_moved", report.verified->bytes_moved},
                        {"bytes_planned", report.verified->bytes_planned}};
  }
  return json;
}

}  // namespace weft
