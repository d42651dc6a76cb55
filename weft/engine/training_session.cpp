#include "weft/engine/training_session.h"

#include <array>
#include <cmath>

#include <fmt/format.h>

#include "weft/base/clock.h"
#include "weft/base/text.h"
#include "weft/checkpoint/agreement.h"
#include "weft/checkpoint/initial_weights.h"
#include "weft/checkpoint/load_checkpoint.h"
#include "weft/checkpoint/save_checkpoint.h"
#include "weft/comm/launch.h"
#include "weft/engine/guarded.h"
#include "weft/engine/memory_check.h"
#include "weft/engine/rank_device.h"
#include "weft/engine/rank_error.h"
#include "weft/engine/same_model.h"
#include "weft/engine/sample_inputs.h"
#include "weft/meaning/plan_batch.h"
#include "weft/pipeline/action_clock.h"
#include "weft/tensor/rank_threads.h"

namespace weft {
namespace {

/// Keeps the samples that are evaluated on apart from those that are trained on.
constexpr uint64_t kUnseen = 0x5eed0fe5a1ULL;

/// What a workload says of samples.
Json samples_of(const Workload& workload) {
  Json json = to_json(workload);
  for (const char* key : {"name", "precision", "optimizer", "attention"}) json.erase(key);
  return json;
}

/// What must be as it was for a run to go on as if it had not ended.
std::optional<Error> check_same_samples(const Checkpoint& checkpoint, const Plan& plan, const TrainConfig& config) {
  const Json now = to_json(config);
  for (const char* field : {"seed", "data"}) {
    if (!checkpoint.run.contains(field) || checkpoint.run[field] == now[field]) continue;
    return Error{.source = config.source,
                 .field = field,
                 .problem = fmt::format("is {}, but the run in {} has {}", now[field].dump(),
                                        checkpoint.folder.string(), checkpoint.run[field].dump()),
                 .advice = "Go on with the run's own value, or begin a new run."};
  }
  if (samples_of(checkpoint.plan.workload) != samples_of(plan.workload)) {
    return Error{.field = "workload",
                 .problem = fmt::format("makes other samples than that of the run in {}", checkpoint.folder.string()),
                 .advice = "Go on with the run's own plan, or begin a new run from its weights."};
  }
  if (checkpoint.step > config.steps) {
    return Error{.source = config.source,
                 .field = "steps",
                 .problem = fmt::format("is {}, but {} has done {} already", config.steps, checkpoint.folder.string(),
                                        checkpoint.step),
                 .advice = "Give more steps."};
  }
  return std::nullopt;
}

std::optional<Error> check_model_of(const Checkpoint& checkpoint, const Plan& plan) {
  if (checkpoint.plan.model.config == plan.model.config) return std::nullopt;
  return Error{.field = "model",
               .problem = fmt::format("is {}, but {} is of {}, or of another configuration of that name",
                                      plan.model.name, checkpoint.folder.string(), checkpoint.plan.model.name),
               .advice = "Use a plan for the checkpoint's model: its run's folder has one."};
}

/// A number of twenty bits that other assignments hardly have: sums of its squares over ranks are exact.
int64_t hash_of(const BatchAssignment& assignment) {
  uint64_t hash = 0;
  const auto add = [&hash](const BatchAssignment::Shares& shares) {
    for (const auto& rank : shares) {
      for (const auto& samples : rank) {
        for (const int64_t sample : samples) hash = (hash ^ static_cast<uint64_t>(sample + 1)) * 0x9e3779b97f4a7c15ULL;
        hash = (hash ^ (hash >> 29)) + 1;
      }
    }
  };
  add(assignment.llm);
  for (const auto& [kind, shares] : assignment.encoders) add(shares);
  return static_cast<int64_t>(hash >> 44);
}

}  // namespace

Result<std::unique_ptr<TrainingSession>> TrainingSession::create(World& world, const Plan& plan,
                                                                 const TrainConfig& config, const Start& start) {
  const std::optional<Checkpoint>& checkpoint = start.checkpoint;
  if (start.goes_on && plan.balance != Balance::kNone && !start.costs.is_given()) {
    return Error{.field = "balance",
                 .problem = "is not none, but there are no costs to balance by",
                 .advice = "Give TrainOptions::costs, or choose a plan without it."};
  }
  std::unique_ptr<TrainingSession> session(new TrainingSession(world, plan, config));
  const auto prepare = [&]() -> std::optional<Error> {
    auto device = open_rank_device(world, config.device);
    if (!device) {
      Error error = std::move(device).error();
      error.source = config.source;
      error.field = "device";
      return error;
    }
    session->device_ = *device;
    // Of threads it was asked before there were any.
    const Launch launch = detect_launch();
    if (launch.kind != Launch::Kind::kThreads || !device->is_cpu()) {
      if (auto error = check_rank_memory(
              start.memory,
              device->is_cpu() ? ranks_of_host(launch, world.size()) : HostRanks{.first = world.rank(), .count = 1},
              *device))
        return error;
    }
    if (checkpoint) {
      if (start.goes_on) {
        if (auto error = check_same_plan(*checkpoint, plan)) return error;
        if (auto error = check_same_samples(*checkpoint, plan, config)) return error;
      } else if (auto error = check_model_of(*checkpoint, plan)) {
        return error;
      }
    } else if (!config.weights.empty()) {
      if (std::error_code ignored; !std::filesystem::is_directory(config.weights, ignored)) {
        return Error{.source = config.source,
                     .field = "weights",
                     .problem = fmt::format("is {}, a folder is needed", in_quotes(config.weights.string())),
                     .advice =
                         "Give the folder of a Hugging Face model, with its config.json and its weights, or leave "
                         "it out for fresh weights."};
      }
      if (auto error = check_same_model(config.weights, plan.model)) return error;
    }
    return std::nullopt;
  };
  if (auto error = first_error(world.all(), prepare())) return *error;

  session->memory_.emplace(session->device_);
  const bool is_fresh = !checkpoint && config.weights.empty();
  auto rank = TrainingRank::create(world, plan,
                                   {.adamw = config.adamw,
                                    .max_gradient_norm = config.max_gradient_norm,
                                    .seed = is_fresh ? std::optional(config.seed) : std::nullopt,
                                    .device = session->device_});
  if (!rank) return rank.error();  // the same on all ranks: it depends on the plan alone
  session->rank_ = *std::move(rank);
  session->costs_ = start.costs;
  session->batches_ = start.batches ? start.batches : std::make_shared<SharedBatches>();

  const auto fill = [&]() -> std::optional<Error> {
    const SampleForm form = sample_form(session->rank_->numbers(), session->rank_->vocabulary());
    auto samples = SyntheticSamples::create(plan.model, plan.workload, form, config.seed);
    if (!samples) return samples.error();
    session->samples_ = *std::move(samples);
    session->unseen_samples_ = *SyntheticSamples::create(plan.model, plan.workload, form, config.seed ^ kUnseen);
    return std::nullopt;
  };
  if (auto error = first_error(world.all(), fill())) return *error;
  if (checkpoint) {
    if (auto error = load_checkpoint(*checkpoint, world.all(), session->rank_->optimizers())) return *error;
    session->step_ = checkpoint->step;
  } else if (!config.weights.empty()) {
    const auto weights = WeightFolder::open(config.weights);
    if (auto error = first_error(world.all(), weights ? std::nullopt : std::optional(weights.error()))) return *error;
    if (auto error = load_initial_weights(*weights, plan.model, world.all(), session->rank_->optimizers()))
      return *error;
  }
  session->first_step_ = session->step_;
  if (start.records) session->recorder_.emplace(world, plan);
  return session;
}

TrainingSession::~TrainingSession() {
  // The thread that makes it uses members of this, and other ranks may still want the batch.
  if (next_batch_.valid()) next_batch_.wait();
}

BatchAssignment TrainingSession::assign(const SyntheticSamples& samples, int64_t batch) const {
  const BatchShape& shape = rank_->batch_shape();
  BatchCosts costs;
  if (plan_->balance == Balance::kNone) return assign_batch(*plan_, costs);
  if (!costs_.is_given()) return assign_in_order(shape);
  for (int64_t index = 0; index < plan_->workload.global_batch_samples; ++index) {
    const SampleLoad load = samples.load(batch * plan_->workload.global_batch_samples + index);
    costs.llm.push_back(costs_.llm(load));
    for (const auto& [kind, encoder] : shape.encoders) costs.encoders[kind].push_back(costs_.encoder(kind, load));
  }
  return assign_batch(*plan_, costs);
}

std::optional<Error> TrainingSession::make_microbatches(const SyntheticSamples& samples, int64_t batch,
                                                        LocalBatch& local) const {
  const auto share = rank_->data_parallel_rank(ModuleKind::kLlm);
  if (!share) return std::nullopt;
  const auto& encoders = local.batch.assignment.encoders;
  const WantedMedia wanted{.vision = !encoders.contains(ModuleKind::kVision),
                           .audio = !encoders.contains(ModuleKind::kAudio)};
  for (const std::vector<int64_t>& indices : local.batch.assignment.llm[static_cast<size_t>(*share)]) {
    std::vector<Sample> own;
    for (const int64_t index : indices) {
      own.push_back(samples.make(batch * plan_->workload.global_batch_samples + index, wanted.vision, wanted.audio));
      local.num_tokens += static_cast<double>(own.back().ids.size());
      const auto flops = training_step_flops(plan_->model, plan_->workload, own.back().load);
      if (!flops) return flops.error();
      local.flops += *flops / static_cast<double>(plan_->workload.global_batch_samples);
    }
    auto inputs = inputs_of(rank_->numbers(), rank_->vocabulary(), own, wanted);
    if (!inputs) return inputs.error();
    local.num_targets += static_cast<double>(inputs->num_targets());
    local.batch.microbatches.push_back(*std::move(inputs));
  }
  return std::nullopt;
}

std::optional<Error> TrainingSession::make_macro_batches(const SyntheticSamples& samples, int64_t batch,
                                                         StepBatch& made) const {
  const int64_t first = batch * plan_->workload.global_batch_samples;
  for (const auto& [kind, shares] : made.assignment.encoders) {
    const auto share = rank_->data_parallel_rank(kind);
    if (!share) continue;
    for (const std::vector<int64_t>& indices : shares[static_cast<size_t>(*share)]) {
      Inputs& media = made.encoders[kind].emplace_back();
      const WantedMedia wanted{.vision = kind == ModuleKind::kVision, .audio = kind == ModuleKind::kAudio};
      std::vector<Sample> own;
      for (const int64_t index : indices) own.push_back(samples.make(first + index, wanted.vision, wanted.audio));
      if (own.empty()) continue;
      auto inputs = inputs_of(rank_->numbers(), rank_->vocabulary(), own, wanted);
      if (!inputs) return inputs.error();
      media.vision = std::move(inputs->vision);
      media.audio = std::move(inputs->audio);
    }
  }
  if (made.assignment.encoders.empty()) return std::nullopt;
  for (int64_t index = 0; index < plan_->workload.global_batch_samples; ++index) {
    const SyntheticSamples::MediaRows rows = samples.media_rows(first + index);
    made.media.push_back({.image = rows.image, .video = 0, .audio = rows.audio});
  }
  return std::nullopt;
}

LocalBatch TrainingSession::make_batch(const SyntheticSamples& samples, int64_t batch) const {
  LocalBatch local;
  local.batch.assignment = assign(samples, batch);
  local.error = make_microbatches(samples, batch, local);
  if (!local.error) local.error = make_macro_batches(samples, batch, local.batch);
  if (local.error || device_.is_cpu()) return local;
  // Beside the step before: a step then begins at once.
  for (Inputs& microbatch : local.batch.microbatches) microbatch = microbatch.staged(rank_->options());
  for (auto& [kind, macros] : local.batch.encoders) {
    for (Inputs& macro : macros) macro = macro.staged(rank_->options());
  }
  return local;
}

std::shared_future<LocalBatch> TrainingSession::batch_of_step(int64_t step) const {
  SharedBatches::Share share;
  for (const ModuleKind kind : {ModuleKind::kLlm, ModuleKind::kVision, ModuleKind::kAudio}) {
    if (const auto rank = rank_->data_parallel_rank(kind)) share[kind] = *rank;
  }
  return batches_->get(share, step, [this, step] {
    use_rank_threads(1);
    return make_batch(*samples_, step);
  });
}

Result<TrainingSession::Share> TrainingSession::share_batch(const LocalBatch& local) {
  const auto dealt = static_cast<double>(hash_of(local.batch.assignment));
  std::array<double, 6> counts = {local.num_tokens, local.num_targets, local.flops, local.error ? 1.0 : 0.0, dealt,
                                  dealt * dealt};
  Group& all = world_->all();
  all.all_reduce(Buffer{.data = counts.data(), .count = std::ssize(counts), .type = DataType::kFp64}, Reduction::kSum)
      .wait();
  if (counts[3] > 0) {
    if (auto error = first_error(all, local.error)) return *error;
  }
  // Equal numbers, and no others, have a square of their sum that is so many times the sum of their squares.
  if (counts[4] * counts[4] != counts[5] * static_cast<double>(all.size())) {
    return Error{.field = "balance",
                 .problem = "ranks predict different costs, so that they deal samples out differently",
                 .advice = "Run the same program on processors of one kind, or choose a plan whose balance is none."};
  }
  // The llm's ranks with the same data-parallel rank have counted the same samples.
  const ModulePlan& llm = plan_->llm();
  const double copies = static_cast<double>(std::ssize(llm.ranks) / llm.dp);
  Share share{.batch = local.batch,
              .num_tokens = std::llround(counts[0] / copies),
              .num_targets = std::llround(counts[1] / copies),
              .flops = counts[2] / copies};
  return share;
}

std::vector<RankStep> TrainingSession::gather_ranks(const RankStep& own) {
  Group& all = world_->all();
  constexpr int64_t kNumbers = 4;
  const std::array<double, kNumbers> mine = {own.compute_ms, own.communication_ms, own.bubble_ms,
                                             own.peak_memory_bytes};
  std::vector<double> numbers(static_cast<size_t>(kNumbers * all.size()));
  all.all_gather(ConstBuffer(mine.data(), kNumbers, DataType::kFp64),
                 Buffer{.data = numbers.data(), .count = std::ssize(numbers), .type = DataType::kFp64})
      .wait();
  std::vector<RankStep> ranks;
  for (size_t i = 0; i < numbers.size(); i += kNumbers)
    ranks.push_back({numbers[i], numbers[i + 1], numbers[i + 2], numbers[i + 3]});
  return ranks;
}

std::optional<double> TrainingSession::peak_flops() const {
  const auto found = plan_->cluster.device.matrix_tflops.find(plan_->precision.compute);
  if (found == plan_->cluster.device.matrix_tflops.end()) return std::nullopt;
  return found->second * 1e12 * static_cast<double>(plan_->world_size);
}

int64_t TrainingSession::peak_bytes(const StepReport& report) const {
  // The executor forgets the peak at every action.
  int64_t peak = memory_->peak_bytes();
  if (device_.is_cpu()) {
    for (const ActionMemory& action : report.memory) peak = std::max(peak, action.peak_bytes);
  }
  return peak;
}

StepReport TrainingSession::guarded_step(const Share& share, double learning_rate, bool asks_device) {
  // LibTorch's messages are stack traces; what a rank dies of is told in our words, with what it was doing.
  const auto fail = [&](Error error) {
    error.source = fmt::format("step {}, {}", step_ + 1, rank_->doing());
    return RankError(error);
  };
  try {
    return rank_->step(share.batch, share.num_targets, learning_rate, asks_device);
  } catch (const c10::Error& error) {
    throw fail(explain_libtorch_error(error, kMemoryAdvice));
  } catch (const std::bad_alloc&) {
    throw fail(memory_ran_out("", kMemoryAdvice));
  }
}

void TrainingSession::record(const Share& share, const StepReport& report, const StepMetrics& metrics) {
  last_record_ = recorder_->gather({.batch = share.batch,
                                    .report = report,
                                    .metrics = metrics,
                                    .start_ms = last_start_ms_,
                                    .steps_before = step_ - first_step_,
                                    .balances_experts = rank_->numbers().text.balance_coefficient > 0});
  if (!last_record_) return;
  const int64_t count = plan_->workload.global_batch_samples;
  for (int64_t index = 0; index < count; ++index)
    last_record_->samples.push_back(samples_->load(step_ * count + index));
}

Result<StepMetrics> TrainingSession::step() {
  const bool records = recorder_ && recorder_->wants(step_, config_->steps);
  last_record_.reset();
  if (records) wait_for_device(device_);  // so that what the step before left does not count
  world_->all().barrier().wait();         // so that all clocks start at once
  last_start_ms_ = now_ms();
  const double waited_before = world_->waited_ms();
  memory_->forget_peak();
  const std::shared_future<LocalBatch> made = next_batch_.valid() ? next_batch_ : batch_of_step(step_);
  WEFT_TRY(const Share share, share_batch(made.get()));
  next_batch_ = step_ + 1 < config_->steps ? batch_of_step(step_ + 1) : std::shared_future<LocalBatch>();
  StepMetrics metrics{.step = step_ + 1,
                      .learning_rate = config_->learning_rate.at(step_),
                      .num_tokens = share.num_tokens,
                      .num_targets = share.num_targets,
                      .model_flops = share.flops};
  StepReport report = guarded_step(share, metrics.learning_rate, records);
  metrics.step_ms = now_ms() - last_start_ms_;
  metrics.loss = report.loss;
  metrics.balance_loss = report.balance_loss;
  metrics.experts = std::move(report.experts);
  metrics.gradient_norm = report.gradient_norm;
  const double blocked = world_->waited_ms() - waited_before;
  metrics.ranks = gather_ranks({.compute_ms = metrics.step_ms - blocked,
                                .communication_ms = std::max(0.0, blocked - report.waited_ms),
                                .bubble_ms = report.waited_ms,
                                .peak_memory_bytes = static_cast<double>(peak_bytes(report))});
  if (const std::optional<double> peak = peak_flops())
    metrics.utilization = metrics.model_flops / (*peak * metrics.step_ms * 1e-3);
  if (records) record(share, report, metrics);
  last_events_ = std::move(report.events);
  if (!report.is_updated || !std::isfinite(report.loss)) {
    const bool is_loss = !std::isfinite(report.loss);
    return Error{.kind = ErrorKind::kJob,
                 .source = fmt::format("step {}", metrics.step),
                 .field = is_loss ? "loss" : "gradient",
                 .problem = fmt::format("is not finite: {}", report.not_finite),
                 .advice =
                     "Lower the learning rate, warm up longer, clip gradients, or compute in fp32; weights are as "
                     "before this step."};
  }
  ++step_;
  return metrics;
}

Result<EvalReport> TrainingSession::evaluate(int64_t num_batches) {
  EvalReport report{.num_batches = num_batches, .step = step_};
  const double start = now_ms();
  double sum = 0;
  for (int64_t batch = 0; batch < num_batches; ++batch) {
    WEFT_TRY(const Share share, share_batch(make_batch(*unseen_samples_, batch)));
    sum += rank_->evaluate(share.batch);
    report.num_targets += share.num_targets;
    report.num_tokens += share.num_tokens;
  }
  report.loss = sum / static_cast<double>(report.num_targets);
  report.ms = now_ms() - start;
  return report;
}

Result<SavedCheckpoint> TrainingSession::save(const std::filesystem::path& checkpoints) {
  return save_checkpoint({.checkpoints = checkpoints,
                          .step = step_,
                          .plan = *plan_,
                          .run = to_json(*config_),
                          .keep_last = config_->checkpoints.keep},
                         world_->all(), rank_->optimizers());
}

}  // namespace weft
