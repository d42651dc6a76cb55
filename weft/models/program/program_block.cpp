#include "weft/models/program/program_block.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <torch/csrc/autograd/custom_function.h>

#include "weft/base/check.h"

namespace weft {

using Role = ProgramValue::Role;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

/// One microbatch on its way through a block.
struct ProgramBlock::Call : torch::CustomClassHolder {
  std::shared_ptr<const ProgramBlock> block;
  std::vector<at::Tensor> given;  ///< until the forward
  RunCall run;
  RunnerTape tape;
  WeightGradients* deferred = nullptr;
};

// The anchor is an input so that autograd makes a node even where x needs no gradient; weights get theirs by hand.
struct ProgramBlock::BlockFunction : torch::autograd::Function<BlockFunction> {
  static at::Tensor forward(AutogradContext* saved, const at::Tensor& /*x*/, const at::Tensor& /*anchor*/,
                            const c10::intrusive_ptr<Call>& call) {
    saved->saved_data["call"] = at::IValue::make_capsule(call);
    return call->block->training_->runner->forward(std::exchange(call->given, {}), call->run, call->tape).front();
  }

  static variable_list backward(AutogradContext* saved, const variable_list& gradients) {
    const auto call = c10::static_intrusive_pointer_cast<Call>(saved->saved_data["call"].toCapsule());
    saved->saved_data.clear();
    const at::NoGradGuard no_graph;
    const ProgramBlock& block = *call->block;
    ProgramRunner& runner = *block.training_->runner;
    const at::Tensor dy = gradients[0].contiguous();
    std::vector<at::Tensor> found;
    if (call->deferred == nullptr) {
      found = runner.backward({dy}, call->tape);
      block.add_gradients(found);
    } else {
      found = runner.backward_inputs({dy}, call->tape);
      call->deferred->add(
          [call] { call->block->add_gradients(call->block->training_->runner->backward_weights(call->tape)); });
    }
    at::Tensor dx;
    if (block.block_->carried_in && saved->needs_input_grad(0)) {
      dx = found[*block.block_->carried_in];
      if (dx.defined()) dx = dx.reshape({-1, dx.size(-1)});
    }
    return {dx, at::Tensor(), at::Tensor()};
  }
};

ProgramBlock::ProgramBlock(const OpParameterMaker& make, ParameterPtr tied) : block_(make.block().program) {
  const std::vector<Op>& ops = make.block().ops;
  std::vector<OpParameters> made(ops.size());
  for (size_t i = 0; i < num_in_program(make.block()); ++i) {
    const auto* matmul = std::get_if<Matmul>(&ops[i].shape);
    if (matmul != nullptr && matmul->is_tied) {
      made[i].weight = tied;
    } else if (has_weights(ops[i])) {
      made[i] = make.make(ops[i]);
    }
  }
  for (const std::optional<OpWeightPlace>& place : weight_places(block_->program, ops)) {
    parameters_.push_back(!place ? ParameterPtr() : place->is_bias ? made[place->op].bias : made[place->op].weight);
    is_transposed_.push_back(place && place->is_transposed);
  }
}

ParameterPtr ProgramBlock::parameter(const std::string& weight) const {
  const auto value = block_->program.find_value(weight);
  return value ? parameters_[*value] : ParameterPtr();
}

std::unique_ptr<ProgramBlock::Running> ProgramBlock::make_running(Program program, const RunStrategy& strategy,
                                                                  const MeshGroups& groups,
                                                                  const RunnerOptions& options) {
  auto running = std::make_unique<Running>(Running{.program = std::move(program), .runner = nullptr});
  auto runner = ProgramRunner::create(running->program, strategy, groups, options);
  WEFT_CHECK(runner.ok(), "{}", runner.error().message());
  running->runner = std::make_unique<ProgramRunner>(*std::move(runner));
  return running;
}

void ProgramBlock::place(const MeshGroups& groups, at::ScalarType type, bool divides_rows) {
  const Program& program = block_->program;
  if (program.operators.empty()) return;
  RunnerOptions options{.reduces_first = at::elementSize(type) < at::elementSize(at::kFloat)};
  bool drops = false;
  for (size_t value = 0; value < program.values.size(); ++value) {
    const bool is_frozen = parameters_[value] && !parameters_[value]->is_trainable();
    options.wants_gradient.push_back(!is_frozen && program.has_gradient(value));
  }
  for (const Operator& op : program.operators) drops |= op.calculation.dropout > 0 || op.attention.dropout > 0;
  const RunStrategy strategy = run_strategy(*block_, divides_rows);
  training_ = make_running(program, strategy, groups, options);
  for (size_t value = 0; value < program.values.size(); ++value) {
    if (!parameters_[value]) continue;
    std::vector<int64_t> shape = training_->runner->layout(value).local_shape(groups.position());
    if (is_transposed_[value]) std::reverse(shape.begin(), shape.end());
    WEFT_CHECK(parameters_[value]->spec.shape == shape, "{} is not held as its operator reads it",
               program.values[value].name);
  }
  if (!drops) return;
  Program plain = program;
  for (Operator& op : plain.operators) op.calculation.dropout = op.attention.dropout = 0;
  evaluating_ = make_running(std::move(plain), strategy, groups, options);
}

std::vector<at::Tensor> ProgramBlock::given(const at::Tensor& x, const BlockData& data) const {
  const Program& program = block_->program;
  std::vector<at::Tensor> given(program.values.size());
  for (size_t value = 0; value < given.size(); ++value) {
    const ProgramValue& own = program.values[value];
    if (parameters_[value]) {
      given[value] = parameters_[value]->value.detach();
      if (is_transposed_[value]) given[value] = given[value].t();
    } else if (value == block_->carried_in) {
      // As many as came: all, or this rank's.
      std::vector<int64_t> shape;
      for (const size_t dim : own.dims)
        shape.push_back(dim == block_->rows.sample_dim ? x.size(0) / block_->rows.rows_per_sample
                                                       : program.dims[dim].length);
      given[value] = x.detach().view(shape);
    } else if (own.role == Role::kData) {
      given[value] = data.tensors.at(own.name);
    }
  }
  return given;
}

RunCall ProgramBlock::call_of(const BlockData& data) const {
  const Program& program = block_->program;
  RunCall call{.draws = data.draws,
               .lengths = {},
               .segments = data.segments,
               .context = data.context,
               .parameters = parameters_};
  for (size_t value = 0; value < is_transposed_.size(); ++value) {
    if (is_transposed_[value]) call.parameters[value].reset();
  }
  const ProgramDim& samples = program.dims[block_->rows.sample_dim];
  if (samples.length != data.length) {
    auto lengths = changed_lengths(program, {{samples.name, data.length}});
    WEFT_CHECK(lengths.ok(), "{}", lengths.error().message());
    call.lengths = *std::move(lengths);
  }
  return call;
}

void ProgramBlock::add_gradients(const std::vector<at::Tensor>& gradients) const {
  for (size_t value = 0; value < parameters_.size(); ++value) {
    if (!parameters_[value] || !gradients[value].defined()) continue;
    const at::Tensor& own = gradients[value];
    parameters_[value]->add_gradient(is_transposed_[value] ? own.t().contiguous() : own);
  }
}

at::Tensor ProgramBlock::run(const at::Tensor& x, const BlockData& data, const RunContext& context) const {
  const Program& program = block_->program;
  if (program.operators.empty()) {
    if (!block_->carried_out) return at::empty({data.length * block_->rows.rows_per_sample, 0});
    const at::Tensor& rows = data.tensors.at(program.values[*block_->carried_out].name);
    return rows.reshape({-1, rows.size(-1)});
  }
  const bool has_input_gradient = x.defined() && x.requires_grad();
  at::Tensor anchor;
  for (const ParameterPtr& parameter : parameters_) {
    if (parameter && parameter->is_trainable()) anchor = parameter->value;
  }
  const bool keeps = at::GradMode::is_enabled() && (anchor.defined() || has_input_gradient);
  at::Tensor made;
  if (keeps) {
    auto call = c10::make_intrusive<Call>();
    call->block = shared_from_this();
    call->given = given(x, data);
    call->run = call_of(data);
    call->deferred = context.deferred;
    made = BlockFunction::apply(x.defined() ? x : anchor.detach(), anchor.defined() ? anchor : x, call);
  } else {
    const bool drops = context.dropout != nullptr;
    const Running& running = drops || !evaluating_ ? *training_ : *evaluating_;
    const at::NoGradGuard no_graph;
    made = running.runner->forward(given(x, data), call_of(data)).front();
  }
  const bool is_rows = program.values[*block_->carried_out].dims.size() > 1;
  return is_rows ? made.reshape({-1, made.size(-1)}) : made;
}

}  // namespace weft
