#include "weft/engine/training_session.h"

#include <algorithm>
#include <array>
#include <cmath>

#include <fmt/format.h>

#include "weft/base/clock.h"
#include "weft/base/counted.h"
#include "weft/base/text.h"
#include "weft/checkpoint/agreement.h"
#include "weft/checkpoint/initial_weights.h"
#include "weft/checkpoint/load_checkpoint.h"
#include "weft/checkpoint/save_checkpoint.h"
#include "weft/comm/launch.h"
#include "weft/engine/batch_maker.h"
#include "weft/engine/guarded.h"
#include "weft/engine/memory_check.h"
#include "weft/engine/rank_device.h"
#include "weft/engine/rank_error.h"
#include "weft/engine/resumed_run.h"
#include "weft/engine/same_model.h"
#include "weft/engine/skipped_samples.h"
#include "weft/meaning/weight_patterns.h"
#include "weft/pipeline/action_clock.h"
#include "weft/program/dropping_ops.h"
#include "weft/program/module_kinds.h"
#include "weft/spec/adapters.h"
#include "weft/tensor/rank_threads.h"

namespace weft {
namespace {

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

TrainingSettings training_settings(const TrainConfig& config, std::optional<uint64_t> seed, at::Device device) {
  return {.adamw = config.adamw,
          .weight_rules = config.weight_rules,
          .peak_learning_rate = config.learning_rate.peak,
          .max_gradient_norm = config.max_gradient_norm,
          .loss = config.loss,
          .seed = seed,
          .device = device};
}

std::optional<Error> find_unfit_rule(const TrainConfig& config, const Plan& plan) {
  if (config.weight_rules.empty()) return std::nullopt;
  const std::vector<std::string> names = all_weight_names(plan.model);
  for (size_t i = 0; i < config.weight_rules.size(); ++i) {
    if (auto problem = find_unfit(config.weight_rules[i].weights, names))
      return Error{.source = config.source,
                   .field = fmt::format("optimizer.rules[{}].weights", i),
                   .problem = *std::move(problem),
                   .advice = "Patterns are of the names that weight files have: '*' is any letters, '?' one."};
  }
  return std::nullopt;
}

Error nothing_held_out(const TrainConfig& config) {
  return {.source = config.data->settings.source,
          .field = "held_out_share",
          .problem = "holds no sample out, so that there is none that training does not see",
          .advice = "Give a share, like 0.1, before training."};
}

/// Samples of conversations that have nothing to learn are refused or left out one by one; those of a program may have
/// rows without targets, but a step's loss is divided by the number of those that have one.
Error nothing_to_learn(int64_t step, const Plan& plan, const TrainConfig& config, const ModelNumbers& numbers) {
  Error error{
      .kind = ErrorKind::kJob,
      .source = config.data ? config.data->settings.source : config.source,
      .problem = fmt::format("step {}: none of its {} samples has a target", step, plan.workload.global_batch_samples),
      .advice =
          "Leave out samples without targets, or take more samples a step: a loss is divided by the number "
          "of targets."};
  if (!numbers.program || !numbers.program->targets) return error;
  const std::string& name = numbers.program->inputs[*numbers.program->targets].name;
  error.problem += fmt::format(": all numbers of {} are below 0", in_quotes(name));
  if (!config.data) return error;
  error.field = "data.inputs." + name;
  for (const NamedFile& file : config.data->inputs) {
    if (file.input == name) error.problem += fmt::format(" in {}", in_quotes(file.path.string()));
  }
  return error;
}

std::optional<Error> find_unfilled_batch(const SampleSource& samples, const Plan& plan, const TrainConfig& config) {
  const int64_t batch = plan.workload.global_batch_samples;
  if (samples.num_different() >= batch) return std::nullopt;
  const bool packs = config.data->settings.packs;
  return Error{.source = config.data->settings.source,
               .field = "sets",
               .problem = fmt::format("have {} to train on, but a step of the plan takes {}",
                                      counted(samples.num_different(), packs ? "packed row" : "sample"), batch),
               .advice = packs ? "Give more data, hold out less, lower cutoff_tokens, or plan a smaller global batch."
                               : "Give more data, hold out less, or plan a smaller global batch."};
}

}  // namespace

Result<std::unique_ptr<TrainingSession>> TrainingSession::create(World& world, const Plan& plan,
                                                                 const TrainConfig& config, const Start& start) {
  const UnlimitedWaits patience(world.all());
  const std::optional<Checkpoint>& checkpoint = start.checkpoint;
  if (start.goes_on && plan.balance != Balance::kNone && !start.costs.is_given()) {
    return Error{.field = "balance",
                 .problem = "is not none, but there are no costs to balance by",
                 .advice = "Give TrainOptions::costs, or choose a plan without it."};
  }
  std::unique_ptr<TrainingSession> session(new TrainingSession(world, plan, config));
  const auto prepare = [&]() -> std::optional<Error> {
    if (auto error = find_unfit_rule(config, plan)) return error;
    if (!config.adapter.empty() && !has_adapters(plan.model)) {
      return Error{.source = config.source,
                   .field = "adapter",
                   .problem = "is given, but the plan's model has no adapters",
                   .advice = "Make a plan with weft plan --adapters."};
    }
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
      if (auto error = start.goes_on ? check_resumed(*checkpoint, plan, config) : check_model_of(*checkpoint, plan))
        return error;
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
  auto rank = TrainingRank::create(
      world, plan, training_settings(config, is_fresh ? std::optional(config.seed) : std::nullopt, session->device_));
  if (!rank) return rank.error();  // the same on all ranks: it depends on the plan alone
  session->rank_ = *std::move(rank);
  session->costs_ = start.costs;
  session->use_batches(start.batches);

  if (auto error = first_error(world.all(), session->make_samples())) return *error;
  const int64_t batch = plan.workload.global_batch_samples;
  session->first_batch_samples_ = batch;
  if (checkpoint) {
    if (const auto error = load_checkpoint(*checkpoint, world.all(), session->rank_->optimizers()))
      return with_good_checkpoint(world.all(), *error, checkpoint->folder,
                                  start.goes_on ? kWayToResume : kWayToEvaluate);
    session->step_ = session->plan_step_ = checkpoint->step;
    session->plan_samples_ = checkpoint->samples;
    session->first_batch_samples_ = checkpoint->first_batch_samples;
  } else if (!config.weights.empty()) {
    const auto weights = WeightFolder::open(config.weights);
    if (auto error = first_error(world.all(), weights ? std::nullopt : std::optional(weights.error()))) return *error;
    if (auto error = load_initial_weights(*weights, plan.model, world.all(), session->rank_->optimizers(),
                                          {.seed = config.seed, .folder = config.adapter}))
      return *error;
  } else if (!config.adapter.empty()) {
    if (auto error = load_initial_adapters(config.adapter, plan.model, world.all(), session->rank_->optimizers()))
      return *error;
  }
  session->first_step_ = session->step_;
  if (start.records) session->recorder_.emplace(world, plan);
  return session;
}

std::optional<Error> TrainingSession::make_samples() {
  // Another plan of the run has the same samples, but synthetic ones are of a plan's workload.
  const bool are_of_files = config_->data || config_->evaluation.data;
  if (!samples_.trained || !config_->data) {
    const auto open = [&] { return open_run_samples(*plan_, *config_, batches_->workers()); };
    auto opened = are_of_files ? batches_->samples(open) : open();
    if (!opened) return opened.error();
    samples_ = *std::move(opened);
  }
  if (config_->evaluation.interval_steps > 0 && !samples_.unseen) return nothing_held_out(*config_);
  return config_->data ? find_unfilled_batch(*samples_.trained, *plan_, *config_) : std::nullopt;
}

int64_t TrainingSession::first_sample(int64_t step) const {
  return plan_samples_ + (step - plan_step_) * plan_->workload.global_batch_samples;
}

double TrainingSession::learning_rate() const {
  return config_->learning_rate.at({.samples = first_sample(step_),
                                    .batch = plan_->workload.global_batch_samples,
                                    .first_batch = first_batch_samples_,
                                    .all_samples = first_sample(config_->learning_rate.total_steps)});
}

std::optional<Error> TrainingSession::switch_plan(std::shared_ptr<const Plan> plan, const SampleCosts& costs,
                                                  std::shared_ptr<SharedBatches> batches) {
  // The batch that is being made is of the old plan, and uses members of this.
  if (next_batch_.valid()) next_batch_.wait();
  next_batch_ = {};
  auto rank = TrainingRank::create(*world_, *plan, training_settings(*config_, std::nullopt, device_));
  if (!rank) return rank.error();  // the same on all ranks: it depends on the plan alone
  if (auto error = move_states(world_->all(), rank_->optimizers(), (*rank)->optimizers())) return error;
  plan_samples_ = first_sample(step_);
  plan_step_ = step_;
  first_step_ = step_;
  rank_ = *std::move(rank);
  own_plan_ = std::move(plan);
  plan_ = own_plan_.get();
  costs_ = costs;
  use_batches(std::move(batches));
  if (recorder_) recorder_.emplace(*world_, *plan_);
  return first_error(world_->all(), make_samples());
}

void TrainingSession::use_batches(std::shared_ptr<SharedBatches> batches) {
  // Of ranks that are processes nobody takes what this one prepares.
  shares_batches_ = batches && detect_launch().kind == Launch::Kind::kThreads;
  batches_ = batches ? std::move(batches) : std::make_shared<SharedBatches>(config_->data_threads);
}

TrainingSession::~TrainingSession() {
  // The thread that makes it uses members of this, and other ranks may still want the batch.
  if (next_batch_.valid()) next_batch_.wait();
}

LocalBatch TrainingSession::make_batch(const SampleSource& samples, int64_t first,
                                       std::optional<int64_t> trained_step) const {
  BatchMaker maker{.plan = *plan_,
                   .rank = *rank_,
                   .costs = costs_,
                   .workers = batches_->workers(),
                   .is_for_gpu = !device_.is_cpu(),
                   .is_shared = shares_batches_};
  if (trained_step) {
    maker.draws = StepDraws{.seed = config_->seed,
                            .step = *trained_step,
                            .samples = {},
                            .of_encoders = encoders_drop_elements(plan_->model.modules)};
  }
  return maker.make(samples, first);
}

std::shared_future<LocalBatch> TrainingSession::batch_of_step(int64_t step, int64_t remade) const {
  SharedBatches::Share share;
  for (const ModuleKind kind : kModuleKinds) {
    if (const auto rank = rank_->data_parallel_rank(kind)) share[kind] = *rank;
  }
  return batches_->get(share, {.step = step, .remade = remade}, [this, step] {
    use_rank_threads(1);
    return make_batch(*samples_.trained, first_sample(step), step);
  });
}

Result<TrainingSession::Share> TrainingSession::agreed_share(SampleSource& samples,
                                                             const std::function<LocalBatch(int64_t)>& make) {
  const UnlimitedWaits patience(world_->all());  // samples are read from disks
  double waited_ms = 0;
  for (int64_t remade = 0;; ++remade) {
    const double start = now_ms();
    const LocalBatch local = make(remade);
    waited_ms += now_ms() - start;
    WEFT_TRY(std::optional<Share> share, share_batch(samples, local));
    if (!share) continue;
    share->waited_ms = waited_ms;
    return *std::move(share);
  }
}

Result<std::optional<TrainingSession::Share>> TrainingSession::share_batch(SampleSource& samples,
                                                                           const LocalBatch& local) {
  const auto dealt = static_cast<double>(hash_of(local.batch.assignment));
  std::array<double, 8> counts = {local.num_tokens,
                                  local.num_targets,
                                  local.flops,
                                  local.error ? 1.0 : 0.0,
                                  dealt,
                                  dealt * dealt,
                                  static_cast<double>(local.skipped.size()),
                                  local.num_records};
  Group& all = world_->all();
  all.all_reduce(Buffer{.data = counts.data(), .count = std::ssize(counts), .type = DataType::kFp64}, Reduction::kSum)
      .wait();
  if (counts[3] > 0) {
    if (auto error = first_error(all, local.error)) return *error;
  }
  last_skipped_.clear();
  if (counts[6] > 0) {
    last_skipped_ = agree_on_skipped(all, local.skipped);
    std::vector<SkippedSample> news;
    std::copy_if(last_skipped_.begin(), last_skipped_.end(), std::back_inserter(news),
                 [](const SkippedSample& skipped) { return skipped.is_new; });
    if (!news.empty()) {
      samples.leave_out(news);
      return std::optional<Share>();
    }
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
  return std::optional(Share{.batch = local.batch,
                             .num_tokens = std::llround(counts[0] / copies),
                             .num_targets = std::llround(counts[1] / copies),
                             .num_records = std::llround(counts[7] / copies),
                             .flops = counts[2] / copies});
}

std::vector<RankStep> TrainingSession::gather_ranks(const RankStep& own) {
  Group& all = world_->all();
  constexpr int64_t kNumbers = 5;
  const std::array<double, kNumbers> mine = {own.compute_ms, own.communication_ms, own.bubble_ms, own.data_ms,
                                             own.peak_memory_bytes};
  std::vector<double> numbers(static_cast<size_t>(kNumbers * all.size()));
  all.all_gather(ConstBuffer(mine.data(), kNumbers, DataType::kFp64),
                 Buffer{.data = numbers.data(), .count = std::ssize(numbers), .type = DataType::kFp64})
      .wait();
  std::vector<RankStep> ranks;
  for (size_t i = 0; i < numbers.size(); i += kNumbers)
    ranks.push_back({numbers[i], numbers[i + 1], numbers[i + 2], numbers[i + 3], numbers[i + 4]});
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

std::optional<Error> TrainingSession::record(const Share& share, const StepReport& report, const StepMetrics& metrics) {
  last_record_ = recorder_->gather({.batch = share.batch,
                                    .report = report,
                                    .metrics = metrics,
                                    .start_ms = last_start_ms_,
                                    .steps_before = step_ - first_step_,
                                    .balances_experts = rank_->numbers().llm.balance_coefficient > 0});
  if (!last_record_) return std::nullopt;
  std::vector<SkippedSample> known;
  for (int64_t index = 0; index < plan_->workload.global_batch_samples; ++index) {
    auto lengths = samples_.trained->lengths_of(first_sample(step_) + index, known);
    if (!lengths) return lengths.error();
    last_record_->samples.push_back(std::move(lengths->load));
  }
  return std::nullopt;
}

Result<StepMetrics> TrainingSession::step() {
  const bool records = recorder_ && recorder_->wants(step_, config_->steps);
  last_record_.reset();
  if (records) wait_for_device(device_);  // so that what the step before left does not count
  world_->all().barrier().wait();         // so that all clocks start at once
  last_start_ms_ = now_ms();
  const double waited_before = world_->waited_ms();
  memory_->forget_peak();
  WEFT_TRY(const Share share, agreed_share(*samples_.trained, [this](int64_t remade) {
             const bool is_made = next_batch_.valid() && remade == 0;
             return (is_made ? next_batch_ : batch_of_step(step_, remade)).get();
           }));
  if (auto error = count_samples(share.num_records)) return *std::move(error);
  if (share.num_targets == 0) return nothing_to_learn(step_ + 1, *plan_, *config_, rank_->numbers());
  next_batch_ = step_ + 1 < config_->steps ? batch_of_step(step_ + 1) : std::shared_future<LocalBatch>();
  StepMetrics metrics{.step = step_ + 1,
                      .learning_rate = learning_rate(),
                      .num_tokens = share.num_tokens,
                      .num_targets = share.num_targets,
                      .model_flops = share.flops};
  StepReport report = guarded_step(share, metrics.learning_rate, records);
  metrics.step_ms = now_ms() - last_start_ms_;
  metrics.loss = report.loss;
  metrics.balance_loss = report.balance_loss;
  metrics.experts = std::move(report.experts);
  metrics.gradient_norm = report.gradient_norm;
  for (const auto& [module, norm] : report.module_norms)
    metrics.module_gradient_norms.emplace_back(name_of(module), norm);
  const double blocked = world_->waited_ms() - waited_before;
  metrics.ranks = gather_ranks({.compute_ms = metrics.step_ms - blocked - share.waited_ms,
                                .communication_ms = std::max(0.0, blocked - report.waited_ms),
                                .bubble_ms = report.waited_ms,
                                .data_ms = share.waited_ms,
                                .peak_memory_bytes = static_cast<double>(peak_bytes(report))});
  if (const std::optional<double> peak = peak_flops())
    metrics.utilization = metrics.model_flops / (*peak * metrics.step_ms * 1e-3);
  if (records) {
    if (auto error = record(share, report, metrics)) throw RankError(*error);
  }
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

std::optional<Error> TrainingSession::count_samples(int64_t num_records) {
  if (!config_->data) return std::nullopt;
  for (int64_t i = 0; i < num_records; ++i) skip_report_.count_used();
  for (const SkippedSample& skipped : last_skipped_)
    skip_report_.add({.source = skipped.source, .problem = skipped.problem});
  const DataSettings& settings = config_->data->settings;
  return skip_report_.find_too_many(settings.max_broken_share, settings.source);
}

Result<EvalReport> TrainingSession::evaluate(int64_t num_batches) {
  if (!samples_.unseen) return nothing_held_out(*config_);
  if (const int64_t different = samples_.unseen->num_different(); different > 0) {
    // The last batch is filled up with samples that do not count.
    const int64_t batch = plan_->workload.global_batch_samples, all = (different + batch - 1) / batch;
    num_batches = config_->evaluation.data ? all : std::min(num_batches, all);
  }
  EvalReport report{.num_batches = num_batches, .step = step_};
  const double start = now_ms();
  double sum = 0;
  for (int64_t batch = 0; batch < num_batches; ++batch) {
    const int64_t first = batch * plan_->workload.global_batch_samples;
    WEFT_TRY(const Share share,
             agreed_share(*samples_.unseen, [this, first](int64_t) { return make_batch(*samples_.unseen, first); }));
    sum += rank_->evaluate(share.batch);
    report.num_targets += share.num_targets;
    report.num_tokens += share.num_tokens;
  }
  if (report.num_targets == 0) {
    return Error{.kind = ErrorKind::kJob,
                 .source = config_->data ? config_->data->settings.source : "",
                 .problem = "has no sample that can be evaluated",
                 .advice = "weft describe --data says what is wrong with its records."};
  }
  report.loss = sum / static_cast<double>(report.num_targets);
  report.ms = now_ms() - start;
  last_skipped_.clear();  // they are of no step
  return report;
}

SaveRequest TrainingSession::save_request(const SaveOptions& options) const {
  Json run = to_json(*config_);
  run.update(options.run);
  return {.checkpoints = options.checkpoints,
          .step = step_,
          .samples = first_sample(step_),
          .first_batch_samples = first_batch_samples_,
          .plan = *plan_,
          .run = std::move(run),
          .keep_last = config_->checkpoints.keep,
          .keep_also = options.keep_also,
          .removes_leftovers = options.removes_leftovers};
}

Result<std::unique_ptr<CheckpointSave>> TrainingSession::begin_save(const SaveOptions& options) {
  return CheckpointSave::begin(save_request(options), world_->all(), rank_->optimizers());
}

Result<SavedCheckpoint> TrainingSession::save(const SaveOptions& options) {
  return save_checkpoint(save_request(options), world_->all(), rank_->optimizers());
}

}  // namespace weft
