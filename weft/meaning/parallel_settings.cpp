#include "weft/meaning/parallel_settings.h"

#include <algorithm>
#include <numeric>

#include <fmt/format.h>

#include "weft/meaning/check.h"
#include "weft/meaning/stage_parts.h"
#include "weft/mesh/mesh.h"
#include "weft/plan/default_ulysses.h"
#include "weft/schedule/schedule_kind.h"

namespace weft {
namespace {

std::optional<Error> check_counts(const ParallelSettings& settings) {
  struct Count {
    const char* name;
    int64_t value;
  };
  for (const Count& count :
       {Count{"data_parallel", settings.data_parallel}, Count{"model_parallel", settings.model_parallel},
        Count{"context_parallel", settings.context_parallel}, Count{"expert_parallel", settings.expert_parallel},
        Count{"pipeline_stage", settings.pipeline_stage}, Count{"virtual_stages", settings.virtual_stages},
        Count{"micro_batch_num", settings.micro_batch_num}, Count{"micro_batch_size", settings.micro_batch_size}}) {
    if (count.value >= 1 && count.value <= 1'000'000) continue;
    return Error{.field = count.name,
                 .problem = fmt::format("is {}, from 1 to 1000000 is allowed", count.value),
                 .advice = "Correct the setting."};
  }
  return std::nullopt;
}

}  // namespace

Result<Plan> make_plan(const Model& model, const Cluster& cluster, const Workload& workload,
                       const ParallelSettings& settings) {
  if (auto error = check_counts(settings)) return *error;
  Plan plan{.model = model, .cluster = cluster, .workload = workload};
  plan.world_size =
      settings.data_parallel * settings.context_parallel * settings.model_parallel * settings.pipeline_stage;
  plan.workload.global_batch_samples = settings.data_parallel * settings.micro_batch_num * settings.micro_batch_size;
  plan.cluster.devices_per_node = std::min(cluster.devices_per_node, plan.world_size);
  plan.cluster.nodes = (plan.world_size + plan.cluster.devices_per_node - 1) / plan.cluster.devices_per_node;
  plan.schedule = {
      .name = !settings.schedule.empty() ? settings.schedule : name_of(usual_schedule(settings.virtual_stages)),
      .mbs = settings.micro_batch_size,
      .microbatches = settings.micro_batch_num};
  plan.precision = settings.precision;
  plan.buckets_mb = settings.buckets_mb;
  const int64_t num_stages = settings.pipeline_stage * settings.virtual_stages;
  for (const Module& module : model.modules) {
    const bool is_llm = module.kind == ModuleKind::kLlm;
    ModulePlan own{.kind = module.kind,
                   .placement = is_llm ? ModulePlacement::kBase : ModulePlacement::kInline,
                   .axis_order = default_axis_order()};
    own.degrees() = {.tp = settings.model_parallel,
                     .cp = settings.context_parallel,
                     .ep = is_llm ? settings.expert_parallel : 1,
                     .pp = settings.pipeline_stage,
                     .vpp = is_llm ? settings.virtual_stages : 1,
                     .dp = settings.data_parallel,
                     .sequence_parallel = settings.sequence_parallel && settings.model_parallel > 1,
                     .zero = settings.optimizer_shard};
    own.ranks.resize(static_cast<size_t>(plan.world_size));
    std::iota(own.ranks.begin(), own.ranks.end(), 0);
    const auto count = static_cast<int64_t>(module.layers.size());
    for (int64_t rank = 0; rank < settings.pipeline_stage; ++rank) {
      auto& layers = own.layers.emplace_back();
      auto& recompute = own.recompute.emplace_back();
      for (int64_t chunk = 0; chunk < settings.virtual_stages; ++chunk) {
        const int64_t stage = stage_at(placement_of(plan), static_cast<int32_t>(settings.pipeline_stage),
                                       {static_cast<int32_t>(rank), static_cast<int32_t>(chunk)});
        const int64_t dealt = is_llm       ? count * (stage + 1) / num_stages - count * stage / num_stages
                              : stage == 0 ? count
                                           : 0;
        layers.push_back(dealt);
        recompute.push_back(RecomputeCounts{.full = std::min(dealt, settings.recomputed_layers)});
      }
    }
    own.cp_ulysses = default_ulysses(plan, own);
    plan.modules.push_back(std::move(own));
  }
  const std::vector<Violation> violations = check_plan(plan);
  if (!violations.empty()) return to_error(violations, "are not legal");
  return plan;
}

}  // namespace weft
