#include "weft/search/woven_encoders.h"

#include <algorithm>

#include "weft/meaning/plan_schedule.h"

namespace weft {

WovenEnds woven_ends(const Plan& plan, const std::vector<EncoderWork>& works) {
  WovenEnds ends;
  const bool waits_at_start = !may_begin_later(plan);
  size_t next = 0;
  for (const ModulePlan& module : plan.modules) {
    if (module.is_in_pipeline()) continue;
    const EncoderWork& work = works[next++];
    if (module.form == EncoderForm::kBefore) continue;
    if (waits_at_start) ends.start_ms = std::max(ends.start_ms, work.first_forward_ms() + work.bridge_ms);
    if (waits_at_start && module.form == EncoderForm::kFill && work.backward_ms > 0)
      ends.end_ms = std::max(ends.end_ms, work.last_backward_ms() + work.bridge_ms);
  }
  return ends;
}

int64_t least_live_of(const Plan& plan, const Schedule& pipeline) {
  int32_t least = 1;
  for (const ModulePlan& module : plan.modules) {
    if (module.is_in_pipeline() || module.form == EncoderForm::kBefore) continue;
    const Result<ScheduledEncoder> macros = macro_batches_of(plan, module);
    if (!macros) return 1;
    least = std::max(least, least_live_macro_batches(pipeline, *macros));
  }
  return least;
}

void add_encoders(const Plan& plan, const std::vector<EncoderWork>& works, std::vector<double>& busy_ms) {
  size_t next = 0;
  for (const ModulePlan& module : plan.modules) {
    if (module.is_in_pipeline()) continue;
    const EncoderWork& work = works[next++];
    if (module.placement == ModulePlacement::kDisjoint) continue;
    const size_t num_ranks = busy_ms.size() * module.ranks.size() / plan.llm().ranks.size();
    for (size_t rank = busy_ms.size() - num_ranks; rank < busy_ms.size(); ++rank)
      busy_ms[rank] += work.forwards_ms() + work.backwards_ms();
  }
}

double busiest_rank_ms(const Plan& plan, const PlacedPipeline& placed, const SolverShape& shape,
                       const std::vector<EncoderWork>& works) {
  std::vector<double> busy(shape.moments.size(), 0);
  for (size_t stage = 0; stage < placed.stages.size(); ++stage) {
    const StageOption& option = placed.stages[stage];
    busy[static_cast<size_t>(shape.schedule.rank_of_stage[stage])] +=
        static_cast<double>(plan.schedule.microbatches) * option.total_ms() + option.figures[kUpdateWork];
  }
  add_encoders(plan, works, busy);
  return *std::max_element(busy.begin(), busy.end());
}

}  // namespace weft
