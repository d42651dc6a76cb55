#include "weft/meaning/macro_batch.h"

#include <algorithm>

namespace weft {

namespace {

/// Of a step.
int64_t num_samples(const Plan& plan) {
  return plan.schedule.microbatches * plan.schedule.mbs * plan.llm().dp;
}

}  // namespace

int64_t samples_at_once(const Plan& plan, const ModulePlan& module) {
  if (module.is_in_pipeline()) return plan.schedule.mbs;
  const int64_t whole = std::max<int64_t>(1, plan.schedule.mbs * module.mbs_scale / module.mbs_parts);
  return std::min(whole, num_samples(plan));
}

bool has_whole_samples(const Plan& plan, const ModulePlan& encoder) {
  return plan.schedule.mbs * encoder.mbs_scale % encoder.mbs_parts == 0;
}

double num_macro_batches(const Plan& plan, const ModulePlan& encoder) {
  return static_cast<double>(num_samples(plan)) / static_cast<double>(samples_at_once(plan, encoder) * encoder.dp);
}

double last_macro_share(const Plan& plan, const ModulePlan& encoder) {
  const int64_t at_once = samples_at_once(plan, encoder), whole = at_once * encoder.dp;
  const int64_t left = (num_samples(plan) - 1) % whole + 1;
  return static_cast<double>(std::min(at_once, left)) / static_cast<double>(at_once);
}

}  // namespace weft
