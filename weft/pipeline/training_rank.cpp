#include "weft/pipeline/training_rank.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include <ATen/ops/stack.h>

#include "weft/meaning/check.h"
#include "weft/meaning/plan_batch.h"
#include "weft/meaning/plan_schedule.h"
#include "weft/meaning/rank_row.h"
#include "weft/optim/clip.h"
#include "weft/pipeline/expert_statistics.h"
#include "weft/pipeline/not_finite.h"
#include "weft/pipeline/sum_over_ranks.h"
#include "weft/pipeline/tensor_type.h"

namespace weft {

Result<std::unique_ptr<TrainingRank>> TrainingRank::create(World& world, const Plan& plan,
                                                           const TrainingSettings& settings) {
  if (const std::vector<Violation> violations = check_plan(plan); !violations.empty())
    return to_error(violations, "are not legal");
  WEFT_TRY(Schedule lowered, playable_schedule(plan));
  WEFT_TRY(ModelNumbers numbers, numbers_to_run(plan.model));

  std::unique_ptr<TrainingRank> rank(new TrainingRank(std::move(numbers)));
  rank->vocabulary_ = vocabulary_of(plan.model);
  rank->batch_shape_ = weft::batch_shape(plan);
  rank->max_gradient_norm_ = settings.max_gradient_norm;
  rank->options_ = at::TensorOptions().dtype(tensor_type(plan.precision.compute)).device(settings.device);
  rank->everyone_ = world.all();
  rank->routers_ = routers_of(plan);
  const ModuleMaking making{
      .world = world, .plan = plan, .numbers = rank->numbers_, .settings = settings, .options = rank->options_};
  PipelineExecutor::Settings executor{.lowered = std::move(lowered), .pace = settings.pace};
  executor.row = row_of_rank(plan, executor.lowered, world.rank());
  executor.device = settings.device;
  executor.blocked_ms = [&world] { return world.waited_ms(); };
  executor.stages.resize(static_cast<size_t>(executor.lowered.num_stages()));
  // Ranks make the groups that they have in common in this order.
  const size_t llm = plan.modules.size() - 1;
  if (rank_groups(plan, llm, world.rank())) {
    WEFT_TRY(rank->llm_, make_module(making, llm));
    executor.pipeline = rank->llm_->groups.pipeline;
    for (TrainedStage& stage : rank->llm_->stages) {
      executor.stages[static_cast<size_t>(stage.model->stage())] = {stage.model.get(), stage.weights.get()};
      rank->stages_.push_back(&stage);
    }
  }
  for (size_t module = 0; module < llm; ++module) {
    if (plan.modules[module].is_in_pipeline()) continue;
    const size_t number = rank->encoders_.size();
    WEFT_TRY(TrainedEncoder encoder,
             make_encoder(making, module, executor.lowered.encoders[number], static_cast<int32_t>(number)));
    rank->encoders_.push_back(std::move(encoder));
    const TrainedEncoder& made = rank->encoders_.back();
    executor.encoders.push_back({made.module, made.kind, made.runner.get(), made.bridge.get()});
    if (!made.here) continue;
    rank->stages_.push_back(&made.here->stages.front());
  }
  rank->note_modules(plan.model);
  rank->executor_ = std::make_unique<PipelineExecutor>(std::move(executor));
  return rank;
}

std::vector<double> TrainingRank::finish_gradients() {
  for (TrainedStage* stage : stages_) {
    for (StageOptimizer* optimizer : stage->optimizers()) optimizer->finish_reduce();
  }
  if (llm_) llm_->tied.sum_gradients();
  std::vector<double> squares = squares_of_modules(/*is_exact=*/false);
  // Those of large gradients may only be too large for single precision.
  const auto is_finite = [](double sum) { return std::isfinite(sum); };
  if (!std::all_of(squares.begin(), squares.end(), is_finite)) squares = squares_of_modules(/*is_exact=*/true);
  everyone_
      ->all_reduce(Buffer{.data = squares.data(), .count = std::ssize(squares), .type = DataType::kFp64},
                   Reduction::kSum)
      .wait();
  return squares;
}

std::vector<double> TrainingRank::squares_of_modules(bool is_exact) const {
  // All are asked for before the first is read, which waits for the device.
  std::vector<at::Tensor> asked;
  std::vector<size_t> module_of;  // by what was asked
  for (size_t i = 0; i < modules_.size(); ++i) {
    for (const TrainedStage* stage : stages_) {
      const auto once = [&](const Parameter& parameter, const WeightPiece& piece) {
        if (module_of_.at(&parameter) != modules_[i]) return 0.0;
        if (llm_ && !llm_->tied.is_counted(parameter)) return 0.0;
        return copies_of(piece, stage->share).place == 0 ? 1.0 : 0.0;
      };
      if (!has_module(*stage, modules_[i])) continue;
      for (const StageOptimizer* optimizer : stage->optimizers()) {
        if (optimizer->parameters().empty()) continue;
        asked.push_back(optimizer->local_squared_norm(once, is_exact));
        module_of.push_back(i);
      }
    }
  }
  std::vector<double> squares(modules_.size());
  if (asked.empty()) return squares;
  const at::Tensor read = at::stack(asked).cpu();
  for (size_t i = 0; i < asked.size(); ++i) squares[module_of[i]] += read.const_data_ptr<double>()[i];
  return squares;
}

bool TrainingRank::has_module(const TrainedStage& stage, ModuleKind module) const {
  const std::vector<ParameterPtr>& all = stage.model->parameters();
  return std::any_of(all.begin(), all.end(), [&](const ParameterPtr& p) { return module_of_.at(p.get()) == module; });
}

void TrainingRank::note_modules(const Model& model) {
  for (const Module& module : model.modules) modules_.push_back(module.kind);
  for (const TrainedStage* stage : stages_) {
    for (const ParameterPtr& parameter : stage->model->parameters())
      module_of_.emplace(parameter.get(), stage->model->module_of(*parameter));
  }
}

TrainedStage& TrainingRank::stage_of(const Action& action) {
  if (action.kind == ActionKind::kEncodeUpdate)
    return encoders_[static_cast<size_t>(action.stage)].here->stages.front();
  const auto found = std::find_if(llm_->stages.begin(), llm_->stages.end(),
                                  [&](const TrainedStage& stage) { return stage.model->stage() == action.stage; });
  WEFT_CHECK(found != llm_->stages.end(), "stage {} is not here", action.stage);
  return *found;
}

std::optional<int64_t> TrainingRank::data_parallel_rank(ModuleKind module) const {
  for (const TrainedEncoder& encoder : encoders_) {
    if (encoder.kind == module) return encoder.here ? std::optional(encoder.here->groups.place.dp) : std::nullopt;
  }
  return llm_ ? std::optional(llm_->groups.place.dp) : std::nullopt;
}

std::optional<TrainingRank::EntryShare> TrainingRank::entry_share(ModuleKind module) const {
  const auto beside = std::find_if(encoders_.begin(), encoders_.end(),
                                   [&](const TrainedEncoder& encoder) { return encoder.kind == module; });
  const TrainedModule* here = beside == encoders_.end() ? llm_.get() : beside->here.get();
  if (here == nullptr) return std::nullopt;
  const bool begins_here = std::any_of(here->stages.begin(), here->stages.end(),
                                       [&](const TrainedStage& stage) { return stage.model->has_entry(module); });
  if (!begins_here) return std::nullopt;
  const std::optional<Group>& group = here->context.group();
  return group ? EntryShare{.num_ranks = group->size(), .rank = group->rank()} : EntryShare{};
}

std::vector<Inputs> TrainingRank::share_out(const StepBatch& batch) const {
  std::vector<Inputs> shares;
  for (const Inputs& whole : batch.microbatches)
    shares.push_back(llm_->context.share(whole, numbers_).to(options_));  // so that others' pixels need not be there
  return shares;
}

void TrainingRank::begin_encoders(const StepBatch& batch, const std::vector<Inputs>& microbatches, bool has_gradients) {
  for (TrainedEncoder& encoder : encoders_)
    begin_step(encoder, numbers_, batch, microbatches, llm_.get(), has_gradients);
}

void TrainingRank::end_encoders() {
  for (TrainedEncoder& encoder : encoders_) encoder.shares.clear();
}

StepReport TrainingRank::step(const StepBatch& batch, int64_t num_targets, double learning_rate, bool asks_device) {
  WEFT_CHECK(num_targets > 0, "a step over {} target tokens", num_targets);
  for (const Inputs& inputs : batch.microbatches) WEFT_CHECK(inputs.has_targets(), "a microbatch without targets");
  release_values();  // which may be whole since they were made, written or read
  for (StageOptimizer* optimizer : optimizers()) optimizer->begin_step();
  const std::optional<Group> experts = llm_ ? llm_->groups.experts : std::nullopt;
  const int64_t sent_before = experts ? experts->traffic().sent : 0;
  StepReport report;
  double scale = 1;
  const auto finish = [&] {
    const std::vector<double> squares = finish_gradients();
    for (size_t i = 0; i < modules_.size(); ++i) report.module_norms.emplace_back(modules_[i], std::sqrt(squares[i]));
    report.gradient_norm = std::sqrt(std::accumulate(squares.begin(), squares.end(), 0.0));
    report.loss = sum_of_first(executor_->loss_so_far()) / static_cast<double>(num_targets);
    report.is_updated = std::isfinite(report.gradient_norm) && std::isfinite(report.loss);  // the same on all ranks
    if (report.is_updated && max_gradient_norm_ > 0) scale = clip_factor(max_gradient_norm_, report.gradient_norm);
  };
  const auto update = [&](const Action& action) {
    if (!report.is_updated) return;
    for (StageOptimizer* optimizer : stage_of(action).optimizers()) optimizer->update(learning_rate, scale);
  };
  const std::vector<Inputs> microbatches = share_out(batch);
  begin_encoders(batch, microbatches, /*has_gradients=*/true);
  StepOutput output = executor_->run(microbatches, 1 / static_cast<double>(num_targets), {finish, update}, asks_device);
  end_encoders();
  report.routed_rows = read_rows(output.routed_rows);
  report.expert_rows = sum_microbatches(report.routed_rows);
  if (routers_.count() > 0) {
    const double own_loss =
        output.balance_loss.defined() && tells_of_routers() ? output.balance_loss.item<double>() : 0;
    report.balance_loss = sum_over_ranks(*everyone_, own_loss);
    report.experts = sum_expert_rows(routers_, tells_of_routers() ? report.expert_rows : ExpertRows(),
                                     experts ? experts->traffic().sent - sent_before : 0, *everyone_);
  }
  report.waited_ms = output.waited_ms;
  if (!report.is_updated) report.not_finite = find_not_finite(output, stages_, *everyone_);
  report.events = std::move(output.events);
  report.memory = std::move(output.memory);
  return report;
}

double TrainingRank::evaluate(const StepBatch& batch) {
  release_values();
  const std::vector<Inputs> microbatches = share_out(batch);
  begin_encoders(batch, microbatches, /*has_gradients=*/false);
  const StepOutput output = executor_->evaluate(microbatches);
  end_encoders();
  return sum_of_first(output.loss_sum);
}

std::vector<at::Tensor> TrainingRank::grow(const StepBatch& batch, GrowingTexts& texts) {
  release_values();
  const std::vector<Inputs> microbatches = share_out(batch);
  for (const Inputs& text : microbatches) WEFT_CHECK(!text.context, "a text whose rows several ranks share");
  begin_encoders(batch, microbatches, /*has_gradients=*/false);
  executor_->grow(microbatches, texts);
  end_encoders();
  std::vector<at::Tensor> logits;
  if (!tells()) return logits;
  for (const auto& [place, text] : texts.kept) {
    if (text.logits.defined()) logits.push_back(text.logits.squeeze(0));  // of one stage, by microbatch
  }
  return logits;
}

/// Of tensor-parallel ranks of the llm, which all know what it gave, the first tells.
bool TrainingRank::tells() const {
  return llm_ && llm_->groups.place.tp == 0;
}

/// Where experts are spread over tensor-parallel ranks, each of them routes other rows.
bool TrainingRank::tells_of_routers() const {
  return tells() || (llm_ && llm_->groups.balance);
}

double TrainingRank::sum_of_first(const at::Tensor& number) {
  return sum_over_ranks(*everyone_, number.defined() && tells() ? number.item<double>() : 0);
}

std::vector<ParameterPtr> TrainingRank::parameters() const {
  std::vector<ParameterPtr> all;
  for (const TrainedStage* stage : stages_)
    all.insert(all.end(), stage->model->parameters().begin(), stage->model->parameters().end());
  return all;
}

std::vector<StageOptimizer*> TrainingRank::optimizers() const {
  std::vector<StageOptimizer*> all;
  for (const TrainedStage* stage : stages_) all.push_back(stage->optimizer.get());
  for (const TrainedStage* stage : stages_) {
    if (stage->experts) all.push_back(stage->experts.get());
  }
  return all;
}

void TrainingRank::adopt_values() {
  for (StageOptimizer* optimizer : optimizers()) optimizer->adopt_values();
}

void TrainingRank::gather_values() {
  for (StageOptimizer* optimizer : optimizers()) optimizer->gather_values();
}

void TrainingRank::release_values() {
  for (StageOptimizer* optimizer : optimizers()) optimizer->release_values();
}

std::vector<HeldElements> TrainingRank::peak_elements() const {
  std::vector<HeldElements> peaks;
  for (const TrainedStage* stage : stages_) peaks.push_back(stage->peak_elements());
  return peaks;
}

}  // namespace weft
