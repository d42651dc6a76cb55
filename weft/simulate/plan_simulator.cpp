#include "weft/simulate/plan_simulator.h"

#include <algorithm>

#include <fmt/format.h>

#include "weft/base/counted.h"
#include "weft/base/units.h"
#include "weft/meaning/plan_schedule.h"
#include "weft/simulate/drawn_samples.h"

namespace weft {
namespace {

/// What the updates of encoders take, by row.
std::vector<double> encoder_updates_ms(const Schedule& schedule, const PlanCosts& costs) {
  std::vector<double> updates(schedule.rows.size(), 0.0);
  for (size_t e = 0; e < costs.encoders.size(); ++e) {
    const ScheduledEncoder& rows = schedule.encoders[e];
    for (int32_t group = 0; group < rows.num_groups(); ++group) {
      const StageCost& stage = costs.encoders[e].stages[static_cast<size_t>(group % rows.num_stages)];
      for (const int32_t row : rows.groups[static_cast<size_t>(group)])
        updates[static_cast<size_t>(row)] += stage.update_ms;
    }
  }
  return updates;
}

/// The step without some cost: what that cost adds.
template <typename Change>
double added_by(const Plan& plan, const Schedule& schedule, const PlanCosts& costs, double step_ms, Change change) {
  PlanCosts without = costs;
  for (StageCost& stage : without.stages) change(stage);
  for (PlanCosts::Encoder& encoder : without.encoders) {
    for (StageCost& stage : encoder.stages) change(stage);
  }
  return std::max(0.0, step_ms - run_schedule(schedule, pipeline_costs(plan, schedule, without)).makespan_ms);
}

/// What a rank's actions of a stage are spent on, all microbatches together.
void add_stage_time(const StageCost& stage, double microbatches, bool splits_update, TimeSplit& time) {
  for (const PassTime* pass : {&stage.forward, &stage.backward_input, &stage.backward_weight, &stage.recompute}) {
    time.tp_ms += microbatches * pass->tp_ms;
    time.cp_ms += microbatches * pass->cp_ms;
    time.ep_ms += microbatches * pass->ep_ms;
  }
  time.tp_ms += microbatches * stage.copies_ms;
  time.compute_ms +=
      microbatches * (stage.forward.compute_ms + stage.backward_input.compute_ms + stage.backward_weight.compute_ms);
  time.recompute_ms += microbatches * stage.recompute.compute_ms;
  time.zero_ms += microbatches * (stage.zero_forward_ms + stage.zero_backward_ms);
  time.offload_ms += microbatches * (stage.offload_forward_ms + stage.offload_backward_ms);
  time.host_ms += microbatches * 2 * stage.action_ms;
  if (splits_update) time.update_ms += stage.update_ms;
}

std::vector<ScheduleRowReport> row_reports(const Plan& plan, const Schedule& schedule, const PlanCosts& costs,
                                           const MeanStep& step) {
  const double dp_ms = added_by(plan, schedule, costs, step.step_time_ms, [](StageCost& s) { s.reduce_ms = 0; });
  const double transfer_ms = added_by(plan, schedule, costs, step.step_time_ms, [](StageCost& s) {
    s.transfer_ms = 0;
    s.transfer_busy_ms = 0;
  });
  std::vector<ScheduleRowReport> rows(schedule.rows.size());
  const std::vector<double> encoder_updates = encoder_updates_ms(schedule, costs);
  const auto microbatches = static_cast<double>(plan.schedule.microbatches);
  for (size_t s = 0; s < costs.stages.size(); ++s)
    add_stage_time(costs.stages[s], microbatches, true, rows[static_cast<size_t>(schedule.rank_of_stage[s])].time);
  for (size_t r = 0; r < rows.size(); ++r) {
    ScheduleRowReport& row = rows[r];
    const bool is_llm = r < static_cast<size_t>(plan.llm().pp);
    row.name = fmt::format("{} {}", is_llm ? "pipeline rank" : "encoder row", r);
    row.memory = step.memory[r];
    TimeSplit& t = row.time;
    // Whatever else the compute stream did was encoders' work.
    const double llm_busy = t.compute_ms + t.recompute_ms + t.tp_ms + t.cp_ms + t.ep_ms + t.zero_ms + t.offload_ms +
                            t.host_ms + t.update_ms;
    t.encoder_ms = std::max(0.0, step.run.busy_ms[r] - llm_busy - encoder_updates[r]);
    t.update_ms += encoder_updates[r];
    const double idle = std::max(0.0, step.step_time_ms - llm_busy - t.encoder_ms - encoder_updates[r]);
    t.dp_ms = std::min(idle, dp_ms);
    t.transfer_ms = std::min(idle - t.dp_ms, transfer_ms);
    t.bubble_ms = idle - t.dp_ms - t.transfer_ms;
  }
  return rows;
}

/// `steps` are those of the first batches.
void add_batches(PlanSimulator& simulator, const Plan& plan, const Schedule& schedule, int64_t batches,
                 std::vector<double> steps, PlanReport& report) {
  steps.resize(std::min(steps.size(), static_cast<size_t>(batches)));
  if (std::ssize(steps) < batches) {
    const SampleWork work(plan, simulator.costs());
    for (int64_t b = std::ssize(steps); b < batches; ++b)
      steps.push_back(simulator.run_drawn(plan, schedule, work, drawn_batch(plan, b)));
  }
  report.batches = batches;
  report.spread = spread_of(std::move(steps));
  report.step_time_ms = report.spread.mean_ms;
}

}  // namespace

Result<PlanSimulator> PlanSimulator::create(const Plan& plan, const Profile* profile) {
  WEFT_TRY(CostModel model, CostModel::create(plan, profile));
  return PlanSimulator(std::move(model));
}

Result<PlanSimulator> PlanSimulator::create(const Plan& plan, std::unique_ptr<BlockTimes> times) {
  WEFT_TRY(CostModel model, CostModel::create(plan, std::move(times)));
  return PlanSimulator(std::move(model));
}

const PlanCosts& PlanSimulator::price(const Plan& plan) {
  model_.price(plan, scratch_);
  return scratch_;
}

MeanStep PlanSimulator::run_mean(const Plan& plan, const Schedule& schedule, Timeline* timeline) {
  const PlanCosts& costs = price(plan);
  MeanStep step;
  step.run = run_schedule(schedule, pipeline_costs(plan, schedule, costs), timeline);
  step.step_time_ms = step.run.makespan_ms;
  step.memory = memory_of_schedule_rows(plan, schedule, costs);
  return step;
}

double PlanSimulator::step_time_ms(const Plan& plan, const Schedule& schedule) {
  return run_schedule(schedule, pipeline_costs(plan, schedule, price(plan))).makespan_ms;
}

double PlanSimulator::run_drawn(const Plan& plan, const Schedule& schedule, const SampleWork& work,
                                const std::vector<SampleLoad>& samples) {
  const PlanCosts& costs = price(plan);
  double longest_ms = 0;
  const DrawnBatch batch(plan, model_, work, samples);
  for (const DrawnBatch::Turns& turns : batch.slowest()) {
    PipelineCosts times = pipeline_costs(plan, schedule, costs);
    batch.apply(turns, schedule, costs, times);
    longest_ms = std::max(longest_ms, run_schedule(schedule, times).makespan_ms);
  }
  return longest_ms;
}

Result<PlanReport> simulate_plan(const Plan& given, const SimulateOptions& options) {
  Plan plan = given;
  std::optional<ProfileUse> profile;
  if (options.profile != nullptr) {
    profile = ProfileUse{.source = options.profile->source, .date = options.profile->date};
    profile->machine = apply_profile(*options.profile, plan);
  }
  WEFT_TRY(PlanSimulator simulator, PlanSimulator::create(plan, options.profile));
  WEFT_TRY(const Schedule schedule, playable_schedule(plan));
  const MeanStep step = simulator.run_mean(plan, schedule, options.timeline);
  PlanReport report{.step_time_ms = step.step_time_ms, .mean_batch_step_time_ms = step.step_time_ms};
  report.rows = row_reports(plan, schedule, simulator.price(plan), step);
  report.memory_limit_bytes = plan.cluster.device.memory_gib * kGiB;
  double idle = 0;
  for (const ScheduleRowReport& row : report.rows) idle += row.time.bubble_ms + row.time.dp_ms + row.time.transfer_ms;
  report.bubble_fraction = idle / (step.step_time_ms * static_cast<double>(report.rows.size()));

  const bool varies = has_distributions(plan.workload);
  const int64_t batches = options.batches.value_or(plan.batches.value_or(kDefaultBatches));
  const double pieces = varies ? expected_pieces(plan.model, plan.workload, batches) : 0;
  if (pieces > kMostDrawnPieces && options.batches) {
    return Error{
        .source = "--batches",
        .problem = fmt::format("{} of {} hold {:.2g} sequences, images and clips, at most {:.2g} are drawn",
                               counted(batches, "batch"), counted(plan.workload.global_batch_samples, "sample"), pieces,
                               kMostDrawnPieces),
        .advice = "Give fewer, or 0 for the mean batch, which such steps are near to."};
  }
  if (varies && batches > 0 && pieces <= kMostDrawnPieces)
    add_batches(simulator, plan, schedule, batches, options.steps_ms, report);

  const double seconds = report.step_time_ms * 1e-3;
  const auto samples = static_cast<double>(plan.workload.global_batch_samples);
  const auto devices = static_cast<double>(plan.world_size);
  report.throughput_samples_per_s = samples / seconds;
  report.tokens_per_s_per_device = samples * num_tokens(simulator.costs().average().llm) / seconds / devices;
  WEFT_TRY(const double flops, training_step_flops(plan.model, plan.workload, simulator.costs().average()));
  const double peak = plan.cluster.device.matrix_tflops.at(plan.precision.compute) * 1e12;
  report.model_flops_utilization = flops / (seconds * devices * peak);
  report.calibrated_to = options.profile != nullptr ? options.profile->source : plan.cluster.calibrated_to;
  report.warnings = unusual_values(plan.cluster);
  if (pieces > kMostDrawnPieces) {
    report.warnings.push_back(
        fmt::format("steps are those of the mean batch: drawn batches would hold {:.2g} sequences, images and clips, "
                    "and at most {:.2g} are drawn",
                    pieces, kMostDrawnPieces));
  }
  if (profile) {
    const std::vector<std::string>& found = profile->machine.warnings;
    report.warnings.insert(report.warnings.end(), found.begin(), found.end());
    profile->blocks = simulator.costs().sources();
    report.profile = std::move(profile);
  }
  if (report.model_flops_utilization > 1)
    report.warnings.push_back("model FLOPs utilization is above 1: device.matrix_tflops or the profile is wrong");
  for (std::string& warning : simulator.costs().warnings()) report.warnings.push_back(std::move(warning));
  return report;
}

}  // namespace weft
