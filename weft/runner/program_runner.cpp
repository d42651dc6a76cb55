#include "weft/runner/program_runner.h"

#include <algorithm>

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <fmt/format.h>

#include "weft/base/check.h"
#include "weft/mesh/transition.h"
#include "weft/program/value_layout.h"

namespace weft {
namespace {

bool is_choice_of(const Rule& rule, Choice choice) {
  const std::vector<Choice> all = choices_of(rule);
  return std::find(all.begin(), all.end(), choice) != all.end();
}

}  // namespace

Result<ProgramRunner> ProgramRunner::create(const Program& program, const RunStrategy& strategy,
                                            const MeshGroups& groups) {
  WEFT_CHECK(program.repeats.empty(), "{} is run with repeats", program.name);
  const AxisGrid& grid = groups.mesh().grid();
  ProgramRunner runner(program);
  for (size_t value = 0; value < program.values.size(); ++value) {
    const bool is_result = program.values[value].role == ProgramValue::Role::kResult;
    // Results have their places when their operators come.
    const std::vector<AxisState> states =
        is_result ? std::vector<AxisState>(grid.num_axes(), AxisState::replicated()) : strategy.sources[value];
    auto layout = value_layout(program, grid, value, states);
    if (!layout)
      return Error{
          .field = program.values[value].name, .problem = layout.error().problem, .advice = layout.error().advice};
    runner.layouts_.push_back(*std::move(layout));
    if (is_result && program.readers_of(value).empty()) runner.outputs_.push_back(value);
  }
  for (size_t op = 0; op < program.operators.size(); ++op) {
    if (auto error = runner.add(op, strategy.operators[op], groups)) return *std::move(error);
  }
  return runner;
}

std::optional<Error> ProgramRunner::add(size_t index, const std::vector<Choice>& choices, const MeshGroups& groups) {
  const Operator& op = program_->operators[index];
  const AxisGrid& grid = groups.mesh().grid();
  for (size_t axis = 0; axis < choices.size(); ++axis) {
    if (!is_choice_of(op.rule, choices[axis]))
      return Error{.field = op.name,
                   .problem = fmt::format("has a choice on {} that its rule '{}' does not allow",
                                          grid.axes()[axis].name, op.rule.text()),
                   .advice = "Choose what 'weft shard' lists for it."};
  }
  std::vector<Layout> reads;
  std::vector<Edge> edges;
  for (size_t i = 0; i < op.operands.size(); ++i) {
    const size_t value = op.operands[i];
    WEFT_TRY(Layout needed, value_layout(*program_, grid, value, operand_states(*program_, op, choices, i)));
    Transition way = plan_transition(layouts_[value], needed);
    const bool has_gradient = program_->has_gradient(value);
    if (!has_gradient) way.adjoint.clear();
    Traffic& traffic = has_gradient ? traffic_ : data_traffic_;
    traffic += traffic_of(way.forward, groups.position());
    traffic += traffic_of(way.adjoint, groups.position());
    edges.push_back({RankSteps(way.forward, groups), RankSteps(way.adjoint, groups)});
    reads.push_back(std::move(needed));
  }
  WEFT_TRY(Layout made, value_layout(*program_, grid, op.result, result_states(op, choices)));
  WEFT_TRY(LocalOperator local, LocalOperator::create(*program_, index, choices, std::move(reads), made, groups));
  traffic_ += local.inside_traffic();
  layouts_[op.result] = std::move(made);
  operators_.push_back(std::make_unique<PlacedOperator>(PlacedOperator{std::move(local), std::move(edges), {}}));
  return std::nullopt;
}

std::vector<at::Tensor> ProgramRunner::forward(const std::vector<at::Tensor>& given, const RunDraws& draws) {
  std::vector<at::Tensor> values = given;
  values.resize(program_->values.size());
  std::vector<size_t> num_readers(values.size());
  for (const Operator& op : program_->operators) {
    for (const size_t value : op.operands) ++num_readers[value];
  }
  for (size_t index = 0; index < operators_.size(); ++index) {
    const Operator& op = program_->operators[index];
    PlacedOperator& placed = *operators_[index];
    std::vector<at::Tensor> operands;
    for (size_t i = 0; i < op.operands.size(); ++i) {
      const size_t value = op.operands[i];
      WEFT_CHECK(values[value].defined(), "{} reads {}, which is not given", op.name, program_->values[value].name);
      operands.push_back(placed.edges[i].forward.run(values[value]));
      if (--num_readers[value] == 0) values[value].reset();
    }
    placed.kept = {};
    values[op.result] = placed.local.forward(operands, draws, placed.kept).contiguous();
  }
  std::vector<at::Tensor> results;
  for (const size_t output : outputs_) results.push_back(values[output]);
  return results;
}

std::vector<at::Tensor> ProgramRunner::backward(const std::vector<at::Tensor>& output_gradients) {
  std::vector<at::Tensor> gradients(program_->values.size());
  for (size_t i = 0; i < outputs_.size(); ++i) gradients[outputs_[i]] = output_gradients[i];
  for (size_t index = operators_.size(); index-- > 0;) {
    const Operator& op = program_->operators[index];
    PlacedOperator& placed = *operators_[index];
    const at::Tensor own = std::exchange(gradients[op.result], {});
    const std::vector<at::Tensor> found = placed.local.backward(own, std::move(placed.kept));
    placed.kept = {};
    const at::NoGradGuard no_graph;
    for (size_t i = op.operands.size(); i-- > 0;) {
      const size_t value = op.operands[i];
      if (!program_->has_gradient(value)) continue;
      const at::Tensor came = placed.edges[i].adjoint.run(found[i].contiguous());
      gradients[value] = gradients[value].defined() ? gradients[value] + came : came;
    }
  }
  return gradients;
}

}  // namespace weft
