#include "weft/runner/program_runner.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>

#include "weft/base/check.h"
#include "weft/program/value_layout.h"
#include "weft/runner/graph_walk.h"

namespace weft {
namespace {

/// Shapes that pipelines and ragged batches come back to.
constexpr size_t kMostShapes = 32;

RunLengths lengths_of(const std::vector<size_t>& dims, const RunLengths& lengths) {
  RunLengths found;
  found.reserve(dims.size());
  for (const size_t dim : dims) found.push_back(lengths[dim]);
  return found;
}

}  // namespace

Result<ProgramRunner> ProgramRunner::create(const Program& program, const RunStrategy& strategy,
                                            const MeshGroups& groups, const RunnerOptions& options) {
  WEFT_CHECK(program.repeats.empty(), "{} is run with repeats", program.name);
  std::vector<bool> wants(program.values.size());
  for (size_t value = 0; value < wants.size(); ++value) {
    const ProgramValue::Role role = program.values[value].role;
    const bool may = role == ProgramValue::Role::kInput || role == ProgramValue::Role::kWeight;
    wants[value] = may && (options.wants_gradient.empty() || options.wants_gradient[value]);
  }
  WEFT_TRY(LoweredProgram lowered, lower(program, strategy, groups, wants, options.reduces_first, options.custom));
  WEFT_TRY(RunLengths lengths, changed_lengths(program, {}));
  ProgramRunner runner(std::move(lowered), std::move(lengths), groups);
  runner.plan(runner.declared_);  // groups are made now
  return runner;
}

ProgramRunner::ProgramRunner(LoweredProgram lowered, RunLengths lengths, const MeshGroups& groups)
    : lowered_(std::make_unique<const LoweredProgram>(std::move(lowered))),
      groups_(groups),
      declared_(std::move(lengths)),
      plans_(kMostShapes),
      edges_(lowered_->arrivals.size(), EdgeCache(kMostShapes)),
      places_(lowered_->operators.size(), PlaceCache(kMostShapes)) {}

Layout ProgramRunner::layout(size_t value, const RunLengths& lengths) const {
  return *value_layout(*lowered_->program, lengths.empty() ? declared_ : lengths, groups_.mesh().grid(), value,
                       lowered_->states[value]);
}

EdgeSteps ProgramRunner::edge_steps(const Arrival& arrival, const RunLengths& lengths) const {
  const auto layout_of = [&](const std::vector<AxisState>& states) {
    return *value_layout(*lowered_->program, lengths, groups_.mesh().grid(), arrival.value, states);
  };
  const std::vector<Step> there = arrival.form.forward(layout_of);
  const std::vector<Step> back = arrival.needs_gradient ? arrival.form.adjoint(layout_of) : std::vector<Step>{};
  return {.forward = RankSteps(there, groups_),
          .adjoint = RankSteps(back, groups_),
          .forward_traffic = traffic_of(there, groups_.position()),
          .adjoint_traffic = traffic_of(back, groups_.position())};
}

std::shared_ptr<const ShapePlan> ProgramRunner::plan(const RunLengths& lengths) {
  const Program& program = *lowered_->program;
  return plans_.get(lengths, [&] {
    ShapePlan made;
    for (size_t i = 0; i < lowered_->arrivals.size(); ++i) {
      const Arrival& arrival = lowered_->arrivals[i];
      made.arrivals.push_back(edges_[i].get(lengths_of(program.values[arrival.value].dims, lengths),
                                            [&] { return edge_steps(arrival, lengths); }));
    }
    for (size_t op = 0; op < lowered_->operators.size(); ++op) {
      std::vector<size_t> dims = program.values[program.operators[op].result].dims;
      for (const size_t operand : program.operators[op].operands)
        dims.insert(dims.end(), program.values[operand].dims.begin(), program.values[operand].dims.end());
      made.places.push_back(
          places_[op].get(lengths_of(dims, lengths), [&] { return lowered_->operators[op].place(lengths); }));
    }
    return made;
  });
}

std::vector<at::Tensor> ProgramRunner::forward(const std::vector<at::Tensor>& given, const RunCall& call,
                                               RunnerTape& tape) {
  WEFT_CHECK(tape.plan_ == nullptr, "{} runs with a tape that still waits for its backward", lowered_->program->name);
  return run(given, call, &tape);
}

std::vector<at::Tensor> ProgramRunner::forward(const std::vector<at::Tensor>& given, const RunCall& call) {
  return run(given, call, nullptr);
}

void ProgramRunner::compute_group(const FlowSegment& segment, const LoweredGroup& group, const ShapePlan& plan,
                                  const RunCall& call, LocalGraph& graph, Running& running) const {
  const Program& program = *lowered_->program;
  const auto op_of = [&](size_t member) { return segment.members[member].op; };
  const auto tensor = [&](const FlowSegment::Read& read) {
    return read.is_leaf ? running.leaves[read.index] : running.made[read.index];
  };
  const auto weight = [&](const FlowSegment::Read& read) {
    return read.is_leaf ? graph.parameters[read.index] : ParameterPtr();
  };
  std::vector<at::Tensor> operands;
  std::vector<ParameterPtr> weights;
  for (const FlowSegment::Read& read : segment.members[group.last()].reads) {
    if (group.count == 1) operands.push_back(tensor(read));
    weights.push_back(weight(read));
  }
  const LocalOperator& last = lowered_->operators[op_of(group.last())];
  const LocalOperator::Call last_call{.place = *plan.places[op_of(group.last())],
                                      .draws = call.draws,
                                      .graph = graph,
                                      .weights = weights,
                                      .segments = call.segments ? &*call.segments : nullptr,
                                      .context = call.context.get()};
  const auto& first_reads = segment.members[group.first].reads;
  at::Tensor& result = running.made[program.operators[op_of(group.last())].result];
  switch (group.kind) {
    case MemberGroup::Kind::kProduct: {
      const size_t before = op_of(group.first);
      const LocalOperator::ProductCall product{
          .activation = group.has_activation ? &lowered_->operators[before] : nullptr,
          .activation_place = group.has_activation ? plan.places[before].get() : nullptr,
          .weight = weight(segment.members[group.product()].reads[1]),
          .bias = group.has_bias ? weights[1] : ParameterPtr(),
          .call = last_call};
      result = LocalOperator::compute_product(tensor(first_reads[0]), product);
      break;
    }
    case MemberGroup::Kind::kSumAndNorm: {
      RowsAndNorm both = last.compute_sum_and_norm(tensor(first_reads[0]), tensor(first_reads[1]), last_call);
      running.made[program.operators[op_of(group.first)].result] = std::move(both.rows);
      result = std::move(both.normed);
      break;
    }
    case MemberGroup::Kind::kAlone:
      result = last.compute(operands, last_call);
      break;
  }
}

std::vector<at::Tensor> ProgramRunner::run(const std::vector<at::Tensor>& given, const RunCall& call,
                                           RunnerTape* tape) {
  const Program& program = *lowered_->program;
  const std::shared_ptr<const ShapePlan> plan = this->plan(call.lengths.empty() ? declared_ : call.lengths);
  const at::AutoGradMode with_graph(tape != nullptr);
  std::vector<at::Tensor> values = given, arrived(lowered_->arrivals.size());
  values.resize(program.values.size());
  if (tape != nullptr) *tape = {};
  Running running;
  running.made.resize(program.values.size());
  for (size_t number = 0; number < lowered_->segments.size(); ++number) {
    const FlowSegment& segment = lowered_->segments[number];
    for (const size_t i : segment.begins) {
      const size_t value = lowered_->arrivals[i].value;
      WEFT_CHECK(values[value].defined(), "{} reads {}, which is not given",
                 program.operators[segment.members.front().op].name, program.values[value].name);
      arrived[i] = plan->arrivals[i]->forward.run(values[value]);
    }
    for (const size_t value : segment.freed_values) values[value].reset();
    LocalGraph graph;
    running.leaves.clear();
    for (const size_t leaf : segment.leaves) {
      const Arrival& arrival = lowered_->arrivals[leaf];
      const bool has_gradient = tape != nullptr && arrival.needs_gradient;
      running.leaves.push_back(arrival.is_weight ? graph.add_weight(arrived[leaf], has_gradient, owner(arrival, call))
                                                 : graph.add_leaf(arrived[leaf], has_gradient));
    }
    for (const size_t i : segment.freed_arrivals) arrived[i].reset();
    graph.ends.resize(segment.ends.size());
    for (const LoweredGroup& group : lowered_->groups[number]) {
      compute_group(segment, group, *plan, call, graph, running);
      for (size_t end = 0; end < segment.ends.size(); ++end) {
        const at::Tensor& made = running.made[segment.ends[end]];
        if (!made.defined() || values[segment.ends[end]].defined()) continue;
        graph.ends[end] = GraphEnd::of(made);
        values[segment.ends[end]] = made.detach();
      }
      for (const size_t leaf : group.freed_leaves) running.leaves[leaf].reset();
      for (const size_t value : group.freed_values) running.made[value].reset();
    }
    if (tape != nullptr) tape->graphs_.push_back(std::move(graph));
  }
  std::vector<at::Tensor> results;
  for (const size_t output : lowered_->outputs) results.push_back(values[output].contiguous());
  if (tape != nullptr) tape->plan_ = plan;
  return results;
}

ParameterPtr ProgramRunner::owner(const Arrival& arrival, const RunCall& call) {
  return arrival.form.is_plain() && !call.parameters.empty() ? call.parameters[arrival.value] : ParameterPtr();
}

void ProgramRunner::collect_weights(size_t segment, LocalGraph& graph, std::vector<at::Tensor>& of_arrivals) const {
  const std::vector<size_t>& leaves = lowered_->segments[segment].leaves;
  graph.deferred->run();
  for (size_t i = leaves.size(); i-- > 0;) {
    const Arrival& arrival = lowered_->arrivals[leaves[i]];
    if (!arrival.is_weight || !arrival.needs_gradient || graph.are_owned[i]) continue;
    accumulate(of_arrivals[leaves[i]], graph.take_weight_gradient(i));
  }
}

void ProgramRunner::return_arrivals(size_t segment, const ShapePlan& plan, bool are_weights,
                                    std::vector<at::Tensor>& of_arrivals, std::vector<at::Tensor>& gradients) const {
  const std::vector<size_t>& begins = lowered_->segments[segment].begins;
  for (size_t i = begins.size(); i-- > 0;) {
    const Arrival& arrival = lowered_->arrivals[begins[i]];
    if (!arrival.needs_gradient || arrival.is_weight != are_weights) continue;
    if (are_weights && !of_arrivals[begins[i]].defined()) continue;  // its owner has it
    const at::Tensor own = std::exchange(of_arrivals[begins[i]], {}).contiguous();
    accumulate(gradients[arrival.value], plan.arrivals[begins[i]]->adjoint.run(own, is_own(own)));
  }
}

std::vector<at::Tensor> ProgramRunner::go_back(const std::vector<at::Tensor>& output_gradients, RunnerTape& tape,
                                               bool with_weights) {
  WEFT_CHECK(tape.awaits_inputs(), "{} goes back without a forward", lowered_->program->name);
  const at::NoGradGuard no_graph;
  std::vector<at::Tensor> gradients(lowered_->program->values.size()), of_arrivals(lowered_->arrivals.size());
  for (size_t i = 0; i < lowered_->outputs.size(); ++i) gradients[lowered_->outputs[i]] = output_gradients[i];
  for (size_t number = lowered_->segments.size(); number-- > 0;) {
    const FlowSegment& segment = lowered_->segments[number];
    LocalGraph& graph = tape.graphs_[number];
    std::vector<at::Tensor> slopes;
    for (const size_t end : segment.ends) slopes.push_back(std::exchange(gradients[end], {}));
    if (with_weights) graph.deferred->leave_nothing();
    std::vector<at::Tensor> found = graph.backward(std::move(slopes));
    for (size_t i = 0; i < found.size(); ++i) {
      if (found[i].defined()) accumulate(of_arrivals[segment.leaves[i]], std::move(found[i]));
    }
    return_arrivals(number, *tape.plan_, false, of_arrivals, gradients);
    if (!with_weights) continue;
    collect_weights(number, graph, of_arrivals);
    return_arrivals(number, *tape.plan_, true, of_arrivals, gradients);
    graph = {};
  }
  tape.went_back_ = true;
  return gradients;
}

std::vector<at::Tensor> ProgramRunner::backward(const std::vector<at::Tensor>& output_gradients, RunnerTape& tape) {
  std::vector<at::Tensor> gradients = go_back(output_gradients, tape, true);
  tape = {};
  return gradients;
}

std::vector<at::Tensor> ProgramRunner::backward_inputs(const std::vector<at::Tensor>& output_gradients,
                                                       RunnerTape& tape) {
  return go_back(output_gradients, tape, false);
}

std::vector<at::Tensor> ProgramRunner::backward_weights(RunnerTape& tape) {
  WEFT_CHECK(tape.went_back_, "{} makes gradients of weights before those of inputs", lowered_->program->name);
  const at::NoGradGuard no_graph;
  std::vector<at::Tensor> gradients(lowered_->program->values.size()), of_arrivals(lowered_->arrivals.size());
  for (size_t number = lowered_->segments.size(); number-- > 0;) {
    collect_weights(number, tape.graphs_[number], of_arrivals);
    return_arrivals(number, *tape.plan_, true, of_arrivals, gradients);
    tape.graphs_[number] = {};
  }
  tape = {};
  return gradients;
}

Traffic ProgramRunner::planned_traffic(const RunLengths& lengths) {
  const Program& program = *lowered_->program;
  const auto plan = this->plan(lengths.empty() ? declared_ : lengths);
  Traffic traffic;
  for (size_t i = 0; i < lowered_->arrivals.size(); ++i) {
    if (!program.has_gradient(lowered_->arrivals[i].value)) continue;
    traffic += plan->arrivals[i]->forward_traffic;
    traffic += plan->arrivals[i]->adjoint_traffic;
  }
  for (const FlowSegment& segment : lowered_->segments) {
    const FlowSegment::Member& member = segment.members.front();
    traffic += plan->places[member.op]->forward_inside;
    const bool goes_back =
        member.reads[0].is_leaf && lowered_->arrivals[segment.leaves[member.reads[0].index]].needs_gradient;
    if (goes_back) traffic += plan->places[member.op]->backward_inside;
  }
  return traffic;
}

Traffic ProgramRunner::planned_bytes(const std::vector<at::Tensor>& given, const RunLengths& lengths) {
  const Program& program = *lowered_->program;
  std::vector<at::ScalarType> types(program.values.size(), at::kLong);
  for (size_t value = 0; value < given.size(); ++value) {
    if (given[value].defined()) types[value] = given[value].scalar_type();
  }
  for (const Operator& op : program.operators) {
    at::ScalarType& type = types[op.result];
    for (const size_t operand : op.operands) {
      if (program.has_gradient(operand))
        type = type == at::kLong ? types[operand] : c10::promoteTypes(type, types[operand]);
    }
    if (op.kind == OperatorKind::kCrossEntropy) type = sum_type(type);
  }
  const auto plan = this->plan(lengths.empty() ? declared_ : lengths);
  const auto size_of = [](at::ScalarType type) { return static_cast<int64_t>(at::elementSize(type)); };
  Traffic bytes;
  for (size_t i = 0; i < lowered_->arrivals.size(); ++i) {
    const Arrival& arrival = lowered_->arrivals[i];
    const at::ScalarType type = types[arrival.value];
    bytes += plan->arrivals[i]->forward_traffic.in_bytes(size_of(type));
    bytes += plan->arrivals[i]->adjoint_traffic.in_bytes(size_of(arrival.is_weight ? sum_type(type) : type));
  }
  for (const FlowSegment& segment : lowered_->segments) {
    const FlowSegment::Member& member = segment.members.front();
    const OperatorPlace& place = *plan->places[member.op];
    const Operator& op = program.operators[member.op];
    const at::ScalarType type = types[op.operands[0]];
    const int64_t size = size_of(op.kind == OperatorKind::kAttention ? type : sum_type(type));
    bytes += place.forward_inside.in_bytes(size);
    const FlowSegment::Read& read = member.reads[0];
    if (read.is_leaf && lowered_->arrivals[segment.leaves[read.index]].needs_gradient)
      bytes += place.backward_inside.in_bytes(size);
  }
  return bytes;
}

Traffic ProgramRunner::planned_data_traffic(const RunLengths& lengths) {
  const auto plan = this->plan(lengths.empty() ? declared_ : lengths);
  Traffic traffic;
  for (size_t i = 0; i < lowered_->arrivals.size(); ++i) {
    if (!lowered_->program->has_gradient(lowered_->arrivals[i].value)) traffic += plan->arrivals[i]->forward_traffic;
  }
  return traffic;
}

}  // namespace weft
