#include "weft/program/program_flow.h"

#include <algorithm>

#include <fmt/format.h>

#include "weft/base/check.h"
#include "weft/program/program_uses.h"
#include "weft/program/value_layout.h"

namespace weft {
namespace {

bool is_choice_of(const Rule& rule, Choice choice) {
  const std::vector<Choice> all = choices_of(rule);
  return std::find(all.begin(), all.end(), choice) != all.end();
}

/// Whether a cut leaves rows of experts in another order than one rank has them in: one of s in "(b s)". The rule
/// allows it, since any order would do as long as all agree on it. Here the axis does the same on all of its ranks
/// instead.
bool is_out_of_order(const Operator& op, Choice choice) {
  if (choice.kind != Choice::Kind::kCut) return false;
  if (op.kind != OperatorKind::kDispatch && op.kind != OperatorKind::kCombine) return false;
  const RuleTerm& rows = op.kind == OperatorKind::kDispatch ? op.rule.result : op.rule.operands[0];
  return std::any_of(rows.begin(), rows.end(), [&](const std::vector<size_t>& parts) {
    return std::find(parts.begin(), parts.end(), choice.index) > parts.begin() &&
           std::find(parts.begin(), parts.end(), choice.index) != parts.end();
  });
}

/// Goes through the operators once and puts each into the last segment or a new one.
class FlowMaker {
 public:
  FlowMaker(const Program& program, const AxisGrid& grid, const std::vector<bool>& wants_gradient, bool reduces_first)
      : reduces_first_(reduces_first), needs_gradient_(wants_gradient) {
    flow_.program = &program;
    flow_.grid = grid;
    made_in_.resize(program.values.size());
    arrivals_of_.resize(program.values.size());
  }

  Result<ProgramFlow> run(const RunStrategy& strategy) {
    const Program& program = *flow_.program;
    const AxisGrid& grid = flow_.grid;
    const ProgramUses uses(program);
    for (size_t value = 0; value < program.values.size(); ++value) {
      const bool is_result = program.values[value].role == ProgramValue::Role::kResult;
      flow_.states.push_back(is_result ? std::vector<AxisState>{} : strategy.sources[value]);
      if (is_result && uses.readers_of(value).empty()) flow_.outputs.push_back(value);
      if (is_result) continue;
      const auto layout = value_layout(program, grid, value, flow_.states[value]);
      if (!layout)
        return Error{
            .field = program.values[value].name, .problem = layout.error().problem, .advice = layout.error().advice};
    }
    for (size_t op = 0; op < program.operators.size(); ++op) {
      if (auto error = add(op, strategy.operators[op])) return *std::move(error);
    }
    finish();
    return std::move(flow_);
  }

 private:
  std::optional<Error> add(size_t index, std::vector<Choice> choices) {
    const Program& program = *flow_.program;
    const Operator& op = program.operators[index];
    const AxisGrid& grid = flow_.grid;
    for (size_t axis = 0; axis < choices.size(); ++axis) {
      if (!is_choice_of(op.rule, choices[axis]))
        return Error{.field = op.name,
                     .problem = fmt::format("has a choice on {} that its rule '{}' does not allow",
                                            grid.axes()[axis].name, op.rule.text()),
                     .advice = "Choose what 'weft shard' lists for it."};
      const bool reads_summands = choices[axis].kind == Choice::Kind::kThrough;
      if (is_out_of_order(op, choices[axis]) || (reduces_first_ && reads_summands)) choices[axis] = Choice::same();
    }
    std::vector<std::vector<AxisState>> wanted;
    for (size_t i = 0; i < op.operands.size(); ++i) {
      wanted.push_back(operand_states(program, op, choices, i));
      WEFT_TRY([[maybe_unused]] const Layout needed, value_layout(program, grid, op.operands[i], wanted.back()));
    }
    flow_.states[op.result] = result_states(op, choices);
    WEFT_TRY([[maybe_unused]] const Layout made, value_layout(program, grid, op.result, flow_.states[op.result]));
    flow_.choices.push_back(std::move(choices));
    const bool is_alone = !flow_.inside_axes(index).empty();
    bool needs = false;
    std::vector<std::optional<size_t>> arrivals;  // none: the segment's own value, as it is
    bool opens = flow_.segments.empty() || is_alone || last_is_alone_;
    for (size_t i = 0; i < op.operands.size(); ++i) {
      const size_t value = op.operands[i];
      needs = needs || needs_gradient_[value];
      const bool is_inner = made_in_[value] && *made_in_[value] + 1 == flow_.segments.size();
      const TransitionForm form(grid, program.values[value].dims.size(), flow_.states[value], wanted[i]);
      opens = opens || (is_inner && !form.is_plain());
    }
    if (opens) flow_.segments.emplace_back();
    last_is_alone_ = is_alone;
    needs_gradient_[op.result] = needs;
    FlowSegment& segment = flow_.segments.back();
    const size_t number = flow_.segments.size() - 1;
    FlowSegment::Member member{.op = index, .reads = {}};
    for (size_t i = 0; i < op.operands.size(); ++i) {
      const size_t value = op.operands[i];
      if (made_in_[value] == number) {
        member.reads.push_back({.is_leaf = false, .index = value});
        continue;
      }
      const size_t arrival = arrival_of(value, wanted[i], number);
      auto leaf = std::find(segment.leaves.begin(), segment.leaves.end(), arrival);
      if (leaf == segment.leaves.end()) leaf = segment.leaves.insert(leaf, arrival);
      member.reads.push_back({.is_leaf = true, .index = static_cast<size_t>(leaf - segment.leaves.begin())});
    }
    segment.members.push_back(std::move(member));
    made_in_[op.result] = number;
    return std::nullopt;
  }

  size_t arrival_of(size_t value, const std::vector<AxisState>& states, size_t segment) {
    for (const size_t i : arrivals_of_[value]) {
      Arrival& known = flow_.arrivals[i];
      if (known.states != states) continue;
      known.last_segment = segment;
      return i;
    }
    const Program& program = *flow_.program;
    arrivals_of_[value].push_back(flow_.arrivals.size());
    flow_.arrivals.push_back(
        {.value = value,
         .states = states,
         .form = TransitionForm(flow_.grid, program.values[value].dims.size(), flow_.states[value], states),
         .needs_gradient = needs_gradient_[value],
         .is_weight = program.values[value].role == ProgramValue::Role::kWeight,
         .first_segment = segment,
         .last_segment = segment});
    flow_.segments[segment].begins.push_back(flow_.arrivals.size() - 1);
    return flow_.arrivals.size() - 1;
  }

  /// What leaves a segment, and until when things are needed.
  void finish() {
    flow_.needs_gradient = needs_gradient_;
    std::vector<std::optional<size_t>> last_use(flow_.program->values.size());
    for (size_t i = 0; i < flow_.arrivals.size(); ++i) {
      const Arrival& arrival = flow_.arrivals[i];
      flow_.segments[arrival.last_segment].freed_arrivals.push_back(i);
      last_use[arrival.value] = std::max(last_use[arrival.value].value_or(0), arrival.first_segment);
      if (const auto made = made_in_[arrival.value]) add_end(flow_.segments[*made], arrival.value);
    }
    for (const size_t output : flow_.outputs) add_end(flow_.segments[*made_in_[output]], output);
    for (size_t value = 0; value < last_use.size(); ++value) {
      if (last_use[value]) flow_.segments[*last_use[value]].freed_values.push_back(value);
    }
  }

  static void add_end(FlowSegment& segment, size_t value) {
    if (std::find(segment.ends.begin(), segment.ends.end(), value) == segment.ends.end()) segment.ends.push_back(value);
  }

  bool reduces_first_;
  ProgramFlow flow_;
  std::vector<bool> needs_gradient_;              ///< by value
  std::vector<std::optional<size_t>> made_in_;    ///< by value: the segment of its operator
  std::vector<std::vector<size_t>> arrivals_of_;  ///< by value: arrivals of the flow
  bool last_is_alone_ = false;
};

}  // namespace

AxisList ProgramFlow::inside_axes(size_t op) const {
  AxisList axes;
  for (size_t axis = 0; axis < choices[op].size(); ++axis) {
    if (is_cut_inside(program->operators[op].rule, choices[op][axis]) && grid.size(axis) > 1) axes.push_back(axis);
  }
  return axes;
}

Result<ProgramFlow> flow_of(const Program& program, const RunStrategy& strategy, const AxisGrid& grid,
                            const std::vector<bool>& wants_gradient, bool reduces_first) {
  return FlowMaker(program, grid, wants_gradient, reduces_first).run(strategy);
}

InsideSums inside_sums(const Operator& op) {
  switch (op.kind) {
    case OperatorKind::kNorm: {
      const int64_t numbers = op.operands.size() == 3 ? 2 : 1;  // a layer norm has a mean, too
      return {.forward = {numbers}, .backward = {numbers}};
    }
    case OperatorKind::kCustom:
      return {.forward = {1}, .backward = {1}};
    case OperatorKind::kSoftmax:
      return {.forward = {1, 1}, .backward = {1}};
    case OperatorKind::kCrossEntropy:
      return {.forward = {1, 2}, .backward = {}};
    default:
      WEFT_CHECK(op.kind == OperatorKind::kAttention, "{} communicates inside without a rule for it", op.name);
      return {};
  }
}

TransitionForm keys_form(const ProgramFlow& flow, size_t op) {
  const Operator& attention = flow.program->operators[op];
  const std::vector<AxisState> cut = operand_states(*flow.program, attention, flow.choices[op], 0);
  std::vector<AxisState> whole = cut;
  for (const size_t axis : flow.inside_axes(op)) whole[axis] = AxisState::replicated_partial_grad();
  return {flow.grid, attention.rule.operands[0].size(), cut, whole};
}

Layout keys_layout(const Program& program, size_t op, const AxisGrid& grid, const RunLengths& lengths,
                   const std::vector<AxisState>& states) {
  const Operator& attention = program.operators[op];
  const Attention& a = attention.attention;
  const int64_t group = (a.heads / a.kv_heads + 2) * a.head_dim, own = 2 * a.head_dim;
  const std::vector<size_t>& dims = program.values[attention.operands[0]].dims;
  RunLengths of_keys = lengths;
  DimLength& last = of_keys[dims.back()];
  last = {.length = last.length / group * own, .unit = std::max(last.unit / group, int64_t{1}) * own};
  return *value_layout(program, of_keys, grid, attention.operands[0], states);
}

}  // namespace weft
