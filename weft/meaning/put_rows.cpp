#include "weft/meaning/put_rows.h"

#include <algorithm>

#include <fmt/format.h>

#include "weft/base/counted.h"
#include "weft/meaning/stage_parts.h"

namespace weft {
namespace {

std::optional<Error> find_misfit(const Plan& plan, const Schedule& rows) {
  if (rows.num_ranks() != plan.llm().pp) {
    return Error{.problem = fmt::format("has {}, but the plan's modules.llm.pp is {}",
                                        counted(rows.num_ranks(), "rank"), plan.llm().pp),
                 .advice = "Give a row for every pipeline rank, or plan again with another pp."};
  }
  if (rows.num_stages() != num_stages(plan)) {
    return Error{.problem = fmt::format("has {}, but the plan's layers lie in {}", counted(rows.num_stages(), "stage"),
                                        num_stages(plan)),
                 .advice = "Use rows with as many stages, or plan again with another vpp."};
  }
  if (rows.num_microbatches != plan.schedule.microbatches) {
    return Error{.problem = fmt::format("has {}, but the plan's schedule.microbatches is {}",
                                        counted(rows.num_microbatches, "microbatch"), plan.schedule.microbatches),
                 .advice = "Use rows with as many, or change schedule.microbatches and schedule.mbs."};
  }
  return std::nullopt;
}

}  // namespace

Result<Plan> with_rows(const Plan& plan, const Schedule& rows) {
  if (auto error = find_misfit(plan, rows)) return *std::move(error);
  Plan changed = plan;
  changed.schedule.name = std::string(kExplicitSchedule);
  changed.schedule.rows = explicit_rows(rows);
  const std::vector<int64_t>& chunks = changed.schedule.rows->chunks;
  for (size_t index = 0; index < plan.modules.size(); ++index) {
    const ModulePlan& before = plan.modules[index];
    ModulePlan& module = changed.modules[index];
    module.actions.clear();
    if (!module.is_encoder()) module.vpp = *std::max_element(chunks.begin(), chunks.end());
    if (!module.is_in_pipeline()) continue;
    module.layers.clear();
    module.recompute.clear();
    for (const int64_t count : chunks) {
      module.layers.emplace_back(static_cast<size_t>(count), 0);
      if (!before.recompute.empty()) module.recompute.emplace_back(static_cast<size_t>(count));
    }
    for (int32_t stage = 0; stage < num_stages(plan); ++stage) {
      const StagePlace from = place_of_stage(plan, stage), to = place_of_stage(changed, stage);
      const auto take = [&](const auto& rows_before, auto& rows_after) {
        if (rows_before.empty()) return;
        rows_after[static_cast<size_t>(to.rank)][static_cast<size_t>(to.chunk)] =
            rows_before[static_cast<size_t>(from.rank)][static_cast<size_t>(from.chunk)];
      };
      take(before.layers, module.layers);
      take(before.recompute, module.recompute);
    }
  }
  return changed;
}

}  // namespace weft
