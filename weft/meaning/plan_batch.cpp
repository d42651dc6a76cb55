#include "weft/meaning/plan_batch.h"

namespace weft {

BatchShape batch_shape(const Plan& plan) {
  BatchShape shape{
      .llm = {.data_parallel = plan.llm().dp, .microbatches = plan.schedule.microbatches, .mbs = plan.schedule.mbs}};
  for (const ModulePlan& module : plan.modules) {
    if (module.is_in_pipeline()) continue;
    shape.encoders[module.kind] = {
        .data_parallel = module.dp, .mbs_scale = module.mbs_scale, .mbs_parts = module.mbs_parts};
  }
  return shape;
}

BalancedModules balanced_modules(const Plan& plan) {
  const ModulePlan& llm = plan.llm();
  return {.llm = plan.balance == Balance::kLlm || plan.balance == Balance::kBoth,
          .encoders = plan.balance == Balance::kEncoder || plan.balance == Balance::kBoth,
          .ranks_in_lockstep = llm.zero == 3 || llm.ep > 1};
}

BatchAssignment assign_batch(const Plan& plan, const BatchCosts& costs) {
  const BatchShape shape = batch_shape(plan);
  return plan.balance == Balance::kNone ? assign_in_order(shape)
                                        : assign_balanced(shape, balanced_modules(plan), costs);
}

}  // namespace weft
