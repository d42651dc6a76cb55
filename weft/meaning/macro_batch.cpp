#include "weft/meaning/macro_batch.h"

#include <algorithm>

namespace weft {

int64_t samples_at_once(const Plan& plan, const ModulePlan& module) {
  if (module.is_in_pipeline()) return plan.schedule.mbs;
  return std::max<int64_t>(1, plan.schedule.mbs * module.mbs_scale / module.mbs_parts);
}

bool has_whole_samples(const Plan& plan, const ModulePlan& encoder) {
  return plan.schedule.mbs * encoder.mbs_scale % encoder.mbs_parts == 0;
}

double num_macro_batches(const Plan& plan, const ModulePlan& encoder) {
  return static_cast<double>(plan.schedule.microbatches * plan.schedule.mbs * plan.llm().dp) /
         static_cast<double>(samples_at_once(plan, encoder) * encoder.dp);
}

}  // namespace weft
