#include "weft/validate/training_run.h"

#include <algorithm>
#include <numeric>

#include <fmt/format.h>

#include "weft/base/product.h"
#include "weft/base/text.h"
#include "weft/base/units.h"
#include "weft/families/plain_decoder.h"
#include "weft/meaning/check.h"
#include "weft/meaning/even_layers.h"
#include "weft/schedule/schedule_kind.h"
#include "weft/simulate/plan_simulator.h"
#include "weft/spec/cluster.h"
#include "weft/spec/model_reader.h"

namespace weft {
namespace {

/// Of all runs of a table, whose plans are kept: they list every device, which is half a GB for so many.
constexpr int64_t kMostDevicesOfRuns = 64 * kMostDevices;

Result<Model> model_of(const TrainingRun& run) {
  if (run.model) return *run.model;
  const Json config = plain_decoder_config({.width = run.hidden_size,
                                            .heads = run.num_heads,
                                            .layers = run.num_layers,
                                            .positions = run.sequence_length,
                                            .vocabulary = run.vocabulary});
  return read_model({.source = run.source, .root = config}, "gpt");
}

Error bad_run(const TrainingRun& run, std::string field, std::string problem, std::string advice) {
  return {.source = run.source, .field = std::move(field), .problem = std::move(problem), .advice = std::move(advice)};
}

std::optional<Error> find_contradiction(const TrainingRun& run, const Cluster& cluster) {
  const int64_t together = product_of({run.tp, run.cp, run.dp, run.pp});
  if (together != run.num_devices) {
    const std::string cp = run.cp > 1 ? fmt::format(" x cp {}", run.cp) : "";
    return bad_run(
        run, "num_gpus",
        fmt::format("is {}, but tp {}{} x dp {} x pp {} = {}", run.num_devices, run.tp, cp, run.dp, run.pp, together),
        "Correct the row.");
  }
  if (run.num_devices > cluster.devices_per_node && run.num_devices % cluster.devices_per_node != 0) {
    return bad_run(
        run, "num_gpus",
        fmt::format("is {}, which nodes of {} devices do not make up", run.num_devices, cluster.devices_per_node),
        "Correct the row, or use the cluster on which it was measured.");
  }
  if (run.global_batch % (run.dp * run.micro_batch) != 0) {
    return bad_run(run, "global_batch",
                   fmt::format("is {}, which dp {} x micro_batch {} = {} does not divide", run.global_batch, run.dp,
                               run.micro_batch, run.dp * run.micro_batch),
                   "Correct the row.");
  }
  return std::nullopt;
}

}  // namespace

Result<Plan> plan_of(const TrainingRun& run, const Cluster& cluster) {
  if (auto error = find_contradiction(run, cluster)) return *error;
  Plan plan;
  WEFT_TRY(plan.model, model_of(run));
  plan.cluster = cluster;
  plan.cluster.nodes = std::max<int64_t>(1, run.num_devices / cluster.devices_per_node);
  if (run.num_devices < cluster.devices_per_node) plan.cluster.devices_per_node = run.num_devices;
  plan.world_size = run.num_devices;
  plan.workload = {.name = "gpt",
                   .source = run.source,
                   .global_batch_samples = run.global_batch,
                   .tokens = Distribution::constant(static_cast<double>(run.sequence_length)),
                   .tokens_include_media = true,
                   .attention = run.fused_attention ? AttentionKernel::kFused : AttentionKernel::kUnfused};
  if (run.patches_per_image > 0) {
    plan.workload.images = {.pieces_per_sample = Distribution::constant(1),
                            .size = Distribution::constant(static_cast<double>(run.patches_per_image))};
  }
  ModulePlan llm{.axis_order = {"tp", "cp", "dp", "pp"}};
  llm.degrees() = {.tp = run.tp,
                   .cp = run.cp,
                   .ep = run.ep,
                   .pp = run.pp,
                   .vpp = run.vpp,
                   .dp = run.dp,
                   .sequence_parallel = run.sequence_parallel && run.tp > 1,
                   .zero = run.zero};
  llm.ranks.resize(static_cast<size_t>(run.num_devices));
  std::iota(llm.ranks.begin(), llm.ranks.end(), 0);
  const auto num_layers = static_cast<int64_t>(plan.model.find(ModuleKind::kLlm)->layers.size());
  llm.layers = even_layers(num_layers, Placement::kLoop, run.pp, run.vpp);
  for (const std::vector<int64_t>& chunks : llm.layers) {
    auto& recompute = llm.recompute.emplace_back();
    for (const int64_t count : chunks) {
      const int64_t full = run.recompute == Recomputation::kFull   ? count
                           : run.recompute == Recomputation::kHalf ? count / 2
                                                                   : 0;
      recompute.push_back(
          RecomputeCounts{.full = full, .selective = run.recompute == Recomputation::kSelective ? count : 0});
    }
  }
  for (const Module& encoder : plan.model.modules) {
    if (encoder.kind == ModuleKind::kLlm) continue;
    ModulePlan inline_encoder = llm;
    inline_encoder.kind = encoder.kind;
    inline_encoder.placement = ModulePlacement::kInline;
    inline_encoder.layers = {{static_cast<int64_t>(encoder.layers.size())}};
    inline_encoder.recompute = {{Recompute{}}};
    plan.modules.push_back(std::move(inline_encoder));
  }
  plan.modules.push_back(std::move(llm));
  plan.schedule = {.name = name_of(usual_schedule(run.vpp)),
                   .mbs = run.micro_batch,
                   .microbatches = run.global_batch / (run.dp * run.micro_batch)};
  plan.overlap_dp = run.overlaps_dp;
  plan.overlap_tp = run.overlaps_tp;
  plan.buckets_mb = run.buckets_mb;
  const std::vector<Violation> violations = check_plan(plan, PlanUse::kPrice);
  if (!violations.empty())
    return bad_run(run, violations.front().field, violations.front().message, "Correct the row.");
  return plan;
}

Result<std::vector<PreparedRun>> prepare(const std::vector<TrainingRun>& runs, const Cluster& cluster) {
  std::vector<PreparedRun> prepared;
  int64_t num_devices = 0;
  for (const TrainingRun& run : runs) {
    num_devices += run.num_devices;
    if (num_devices > kMostDevicesOfRuns) {
      return bad_run(
          run, "num_gpus",
          fmt::format("is {}: up to this row the runs have {} devices, and {} are the most",
                      with_commas(run.num_devices), with_commas(num_devices), with_commas(kMostDevicesOfRuns)),
          "Give the rows in several tables.");
    }
    WEFT_TRY(Plan plan, plan_of(run, cluster));
    WEFT_TRY(Schedule schedule, playable_schedule(plan));
    // Everything that can be wrong is found here, so that predictions cannot fail.
    WEFT_TRY(PlanSimulator simulator, PlanSimulator::create(plan));
    double most_bytes = 0;
    for (const MemorySplit& row : simulator.run_mean(plan, schedule).memory)
      most_bytes = std::max(most_bytes, row.total());
    const bool is_overfull = most_bytes > plan.cluster.device.memory_gib * kGiB;
    prepared.push_back(
        {.run = run, .plan = std::move(plan), .schedule = std::move(schedule), .is_overfull = is_overfull});
  }
  return prepared;
}

double predict_ms(const PreparedRun& run, const Efficiency& efficiency) {
  Plan plan = run.plan;
  plan.cluster.efficiency = efficiency;
  if (run.is_overfull && run.waits_where_overfull) plan.overlap_dp = false;
  PlanSimulator simulator = *PlanSimulator::create(plan);
  return simulator.step_time_ms(plan, run.schedule);
}

}  // namespace weft
