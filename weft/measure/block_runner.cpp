#include "weft/measure/block_runner.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/full.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/randn_like.h>
#include <ATen/ops/zeros.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/variable.h>

#include "weft/base/check.h"
#include "weft/base/clock.h"
#include "weft/measure/rank_setup.h"
#include "weft/pipeline/tensor_type.h"
#include "weft/tensor/memory_count.h"

namespace weft {
namespace {

constexpr double kMostBacklogMs = 8;  // of a host that was held up, by a kernel's compilation say
constexpr auto kAllPools = static_cast<size_t>(c10::CachingAllocator::StatType::AGGREGATE);

double bytes_of(const std::vector<at::Tensor>& tensors) {
  double bytes = 0;
  for (const at::Tensor& tensor : tensors) bytes += static_cast<double>(tensor.nbytes());
  return bytes;
}

}  // namespace

BlockRunner::BlockRunner(BlockPlan plan, ModelNumbers numbers, const Settings& settings)
    : plan_(std::move(plan)),
      numbers_(std::move(numbers)),
      device_(settings.device),
      options_(at::TensorOptions().dtype(tensor_type(settings.precision)).device(settings.device)),
      echo_(plan_.rank, plan_.plan.world_size, settings.meet),
      settings_{.seed = {}, .device = settings.device},
      backlog_(settings.device) {}

Result<std::unique_ptr<BlockRunner>> BlockRunner::create(const Settings& settings) {
  WEFT_TRY(BlockPlan plan, plan_of_block(settings.model, settings.shape, {settings.precision, settings.recompute}));
  WEFT_TRY(ModelNumbers numbers, numbers_to_run(settings.model));
  WEFT_TRY(const BlockInputs made, inputs_of_block(settings.model, numbers, settings.shape));
  std::unique_ptr<BlockRunner> runner(new BlockRunner(std::move(plan), std::move(numbers), settings));
  const ModuleMaking making{.world = runner->echo_.world(),
                            .plan = runner->plan_.plan,
                            .numbers = runner->numbers_,
                            .settings = runner->settings_,
                            .options = runner->options_};
  WEFT_TRY(runner->module_, make_module(making, runner->plan_.module));
  runner->token_share_ = made.tokens / settings.shape.tokens;
  runner->inputs_ = runner->module_->context.share(made.inputs, runner->numbers_).to(runner->options_);
  draw_weights(runner->stage().model->parameters());
  runner->set_hooks();
  for (const FlowTensor& tensor : runner->stage().model->tensors_in(runner->inputs_))
    runner->given_.push_back(at::randn(tensor.shape, runner->options_));
  for (StageOptimizer* optimizer : runner->stage().optimizers()) optimizer->begin_step();
  return runner;
}

/// Only the block is timed, not what its stage does once around all of its blocks.
void BlockRunner::set_hooks() {
  const BlockHooks& own = stage().weights->hooks();
  hooks_.before_forward = [this, &own](size_t block) {
    own.before_forward(block);
    if (marking_ != nullptr) mark(*marking_, 0);
  };
  hooks_.after_forward = [this, &own](size_t block) {
    if (marking_ != nullptr) mark(*marking_, 1);
    own.after_forward(block);
  };
  hooks_.before_backward = own.before_backward;
}

void BlockRunner::mark(TimeMarks& marks, size_t place) {
  const bool begins_pass = place % 2 == 0;
  PassTime& last = last_[place / 2];
  if (begins_pass) {
    if (marks.is_past()) backlog_.forget();  // whatever the last passes let expect
    backlog_.top_up(std::min(2 * last.host_ms, kMostBacklogMs));
    backlog_.handed_over(last.device_ms);
    pass_began_ms_ = now_ms();
  } else {
    last.host_ms = now_ms() - pass_began_ms_;
  }
  runs_.back().copies[place] = echo_.copies();
  runs_.back().at[place] = marks.mark();
}

void BlockRunner::forward(Visit& visit, bool defers) {
  const std::vector<FlowTensor> tensors = stage().model->tensors_in(inputs_);
  for (size_t i = 0; i < tensors.size(); ++i)
    visit.inputs.push_back(given_[i].detach().set_requires_grad(tensors[i].needs_gradient));
  run_forward(visit, inputs_, defers);
}

void BlockRunner::run_forward(Visit& visit, const Inputs& inputs, bool defers) {
  const StageModel& model = *stage().model;
  Flow flow(plan_.plan.modules.size());
  const std::vector<FlowTensor> tensors = model.tensors_in(inputs);
  for (size_t i = 0; i < tensors.size(); ++i) flow[tensors[i].module] = visit.inputs[i];
  StageResult result = model.forward(std::move(flow), inputs, defers ? &visit.deferred : nullptr, &hooks_);
  std::vector<at::Tensor> outputs;
  if (result.loss.defined()) {
    outputs.push_back(result.loss);
  } else {
    for (const at::Tensor& tensor : result.flow)
      if (tensor.defined() && tensor.requires_grad()) outputs.push_back(tensor);
  }
  if (output_gradients_.empty()) {
    for (const at::Tensor& output : outputs) {
      const double scale = 1 / static_cast<double>(std::max<int64_t>(1, inputs_.num_targets()));
      output_gradients_.push_back(result.loss.defined() ? at::full({}, scale, output.options())
                                                        : at::randn_like(output).detach());
    }
  }
  for (const at::Tensor& output : outputs) visit.roots.push_back(torch::autograd::impl::gradient_edge(output));
  visit.gradients = output_gradients_;
}

void BlockRunner::backward(Visit& visit, bool defers) {
  StageWeights& weights = *stage().weights;
  if (!defers) weights.begin_gradients(/*is_last=*/false);
  weights.begin_backward(defers ? &visit.deferred : nullptr);
  if (!visit.roots.empty()) {
    torch::autograd::Engine::get_default_engine().execute(visit.roots, visit.gradients, /*keep_graph=*/false,
                                                          /*create_graph=*/false, /*accumulate_grad=*/true);
  }
  weights.end_backward();
  visit.inputs.clear();
  visit.roots.clear();
  visit.gradients.clear();
  if (!defers) weights.end_gradients();
}

void BlockRunner::weights(Visit& visit) {
  stage().weights->begin_gradients(/*is_last=*/false);
  visit.deferred.run();
  stage().weights->end_gradients();
}

void BlockRunner::run(TimeMarks& marks) {
  runs_.emplace_back();
  Visit visit;
  run_others();
  marking_ = &marks;
  forward(visit, /*defers=*/true);
  marking_ = nullptr;
  run_others();
  mark(marks, 2);
  backward(visit, /*defers=*/true);
  mark(marks, 3);
  mark(marks, 4);
  weights(visit);
  mark(marks, 5);
}

void BlockRunner::pass_by(int64_t bytes) {
  others_ = bytes >= 4 ? at::zeros({bytes / 4}, at::TensorOptions(at::kFloat).device(device_)) : at::Tensor();
}

void BlockRunner::run_others() {
  if (!others_.defined()) return;
  const at::NoGradGuard no_graph;
  others_.add_(1);
}

double BlockRunner::weight_bytes() {
  double bytes = 0;
  for (const ParameterPtr& parameter : stage().model->parameters()) {
    bytes += static_cast<double>(parameter->value.nbytes());
    if (parameter->gradient.defined()) bytes += static_cast<double>(parameter->gradient.nbytes());
  }
  return bytes;
}

std::vector<BlockPasses> BlockRunner::passes(const TimeMarks& marks, double copy_bytes_per_ms) {
  std::vector<BlockPasses> all;
  for (const RunMarks& run : runs_) {
    const auto between = [&](size_t begin, size_t end) {
      const double copied_ms = run.copies[end].host_ms - run.copies[begin].host_ms;
      const auto copied_bytes = static_cast<double>(run.copies[end].gpu_bytes - run.copies[begin].gpu_bytes);
      const double ms = marks.ms_between(run.at[begin], run.at[end]) - copied_ms - copied_bytes / copy_bytes_per_ms;
      return std::max(ms, 0.0) / token_share_;
    };
    all.push_back({between(0, 1), between(2, 3), between(4, 5)});
  }
  if (!runs_.empty()) {
    for (size_t pass = 0; pass < last_.size(); ++pass)
      last_[pass].device_ms = marks.ms_between(runs_.back().at[2 * pass], runs_.back().at[2 * pass + 1]);
  }
  runs_.clear();
  return all;
}

int64_t BlockRunner::held_bytes() const {
  if (device_.is_cpu()) return current_memory_count()->current_bytes();
  return c10::getDeviceAllocator(device_.type())->getDeviceStats(device_.index()).allocated_bytes[kAllPools].current;
}

int64_t BlockRunner::peak_bytes() const {
  if (device_.is_cpu()) return current_memory_count()->peak_bytes();
  return c10::getDeviceAllocator(device_.type())->getDeviceStats(device_.index()).allocated_bytes[kAllPools].peak;
}

void BlockRunner::forget_peak() {
  if (device_.is_cpu()) return current_memory_count()->forget_peak();
  c10::getDeviceAllocator(device_.type())->resetPeakStats(device_.index());
}

/// Of an encoder's entry, whose input they are, with pixels and frames of their own.
Inputs BlockRunner::copied_inputs() const {
  Inputs copy = inputs_;
  if (!given_.empty()) return copy;
  if (copy.vision) copy.vision->pixels = copy.vision->pixels.clone();
  if (copy.audio) copy.audio->frames = copy.audio->frames.clone();
  return copy;
}

double BlockRunner::input_bytes() const {
  return bytes_of(given_);
}

BlockBytes BlockRunner::measure_bytes() {
  WEFT_CHECK(!device_.is_cpu() || current_memory_count(), "memory is not counted on this thread");
  {
    // Gradients and what libraries keep are there from the first run on.
    Visit visit;
    forward(visit, /*defers=*/false);
    backward(visit, /*defers=*/false);
  }
  const auto before = static_cast<double>(held_bytes());
  Visit visit;
  BlockBytes bytes;
  {
    // Nobody but the block itself may hold on to its input: a leaf of autograd's graph would.
    Inputs inputs = copied_inputs();
    for (const at::Tensor& given : given_) {
      const at::Tensor leaf = at::zeros({}, given.options()).set_requires_grad(true);
      visit.inputs.push_back(given + leaf);
    }
    forget_peak();
    run_forward(visit, inputs, /*defers=*/false);
    visit.inputs.clear();
    bytes.forward_peak = static_cast<double>(peak_bytes()) - before;
  }
  bytes.kept = static_cast<double>(held_bytes()) - before;
  forget_peak();
  backward(visit, /*defers=*/false);
  bytes.backward_peak = static_cast<double>(peak_bytes()) - before + bytes_of(output_gradients_);
  return bytes;
}

}  // namespace weft
