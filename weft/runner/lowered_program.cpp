#include "weft/runner/lowered_program.h"

#include <algorithm>

#include <fmt/format.h>

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
class Lowering {
 public:
  Lowering(const Program& program, const MeshGroups& groups, const std::vector<bool>& wants_gradient,
           bool reduces_first, const CustomOperators& custom)
      : groups_(groups), custom_(custom), reduces_first_(reduces_first), needs_gradient_(wants_gradient) {
    lowered_.program = &program;
    made_in_.resize(program.values.size());
  }

  Result<LoweredProgram> run(const RunStrategy& strategy) {
    const Program& program = *lowered_.program;
    const AxisGrid& grid = groups_.mesh().grid();
    for (size_t value = 0; value < program.values.size(); ++value) {
      const bool is_result = program.values[value].role == ProgramValue::Role::kResult;
      lowered_.states.push_back(is_result ? std::vector<AxisState>{} : strategy.sources[value]);
      if (is_result && program.readers_of(value).empty()) lowered_.outputs.push_back(value);
      if (is_result) continue;
      const auto layout = value_layout(program, grid, value, lowered_.states[value]);
      if (!layout)
        return Error{
            .field = program.values[value].name, .problem = layout.error().problem, .advice = layout.error().advice};
    }
    for (size_t op = 0; op < program.operators.size(); ++op) {
      if (auto error = add(op, strategy.operators[op])) return *std::move(error);
    }
    finish();
    return std::move(lowered_);
  }

 private:
  std::optional<Error> add(size_t index, std::vector<Choice> choices) {
    const Program& program = *lowered_.program;
    const Operator& op = program.operators[index];
    const AxisGrid& grid = groups_.mesh().grid();
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
    lowered_.states[op.result] = result_states(op, choices);
    WEFT_TRY([[maybe_unused]] const Layout made, value_layout(program, grid, op.result, lowered_.states[op.result]));
    WEFT_TRY(LocalOperator local, LocalOperator::create(program, index, choices, groups_, custom_));
    const bool is_alone = local.communicates();
    bool needs = false;
    std::vector<std::optional<size_t>> arrivals;  // none: the segment's own value, as it is
    bool opens = lowered_.segments.empty() || is_alone || last_is_alone_;
    for (size_t i = 0; i < op.operands.size(); ++i) {
      const size_t value = op.operands[i];
      needs = needs || needs_gradient_[value];
      const bool is_inner = made_in_[value] && *made_in_[value] + 1 == lowered_.segments.size();
      const TransitionForm form(grid, program.values[value].dims.size(), lowered_.states[value], wanted[i]);
      opens = opens || (is_inner && !form.is_plain());
    }
    if (opens) lowered_.segments.emplace_back();
    last_is_alone_ = is_alone;
    needs_gradient_[op.result] = needs;
    LoweredSegment& segment = lowered_.segments.back();
    const size_t number = lowered_.segments.size() - 1;
    LoweredSegment::Member member{.op = index, .reads = {}};
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
    lowered_.operators.push_back(std::move(local));
    return std::nullopt;
  }

  size_t arrival_of(size_t value, const std::vector<AxisState>& states, size_t segment) {
    for (size_t i = 0; i < lowered_.arrivals.size(); ++i) {
      Arrival& known = lowered_.arrivals[i];
      if (known.value != value || known.states != states) continue;
      known.last_segment = segment;
      return i;
    }
    const Program& program = *lowered_.program;
    lowered_.arrivals.push_back({.value = value,
                                 .states = states,
                                 .form = TransitionForm(groups_.mesh().grid(), program.values[value].dims.size(),
                                                        lowered_.states[value], states),
                                 .needs_gradient = needs_gradient_[value],
                                 .is_weight = program.values[value].role == ProgramValue::Role::kWeight,
                                 .first_segment = segment,
                                 .last_segment = segment});
    lowered_.segments[segment].begins.push_back(lowered_.arrivals.size() - 1);
    return lowered_.arrivals.size() - 1;
  }

  /// What leaves a segment, and until when things are needed.
  void finish() {
    std::vector<std::optional<size_t>> last_use(lowered_.program->values.size());
    for (size_t i = 0; i < lowered_.arrivals.size(); ++i) {
      const Arrival& arrival = lowered_.arrivals[i];
      lowered_.segments[arrival.last_segment].freed_arrivals.push_back(i);
      last_use[arrival.value] = std::max(last_use[arrival.value].value_or(0), arrival.first_segment);
      if (const auto made = made_in_[arrival.value]) add_end(lowered_.segments[*made], arrival.value);
    }
    for (const size_t output : lowered_.outputs) add_end(lowered_.segments[*made_in_[output]], output);
    for (size_t value = 0; value < last_use.size(); ++value) {
      if (last_use[value]) lowered_.segments[*last_use[value]].freed_values.push_back(value);
    }
  }

  static void add_end(LoweredSegment& segment, size_t value) {
    if (std::find(segment.ends.begin(), segment.ends.end(), value) == segment.ends.end()) segment.ends.push_back(value);
  }

  const MeshGroups& groups_;
  const CustomOperators& custom_;
  bool reduces_first_;
  LoweredProgram lowered_;
  std::vector<bool> needs_gradient_;            ///< by value
  std::vector<std::optional<size_t>> made_in_;  ///< by value: the segment of its operator
  bool last_is_alone_ = false;
};

}  // namespace

Result<LoweredProgram> lower(const Program& program, const RunStrategy& strategy, const MeshGroups& groups,
                             const std::vector<bool>& wants_gradient, bool reduces_first,
                             const CustomOperators& custom) {
  return Lowering(program, groups, wants_gradient, reduces_first, custom).run(strategy);
}

}  // namespace weft
