#include "weft/meaning/held_state.h"

#include "weft/meaning/stage_buckets.h"

namespace weft {
namespace {

int64_t whole_bytes(Precision precision, int64_t elements) {
  return static_cast<int64_t>(num_bytes(precision)) * elements;
}

HeldState held_in(const StageBuckets& buckets, const PrecisionPlan& precision) {
  HeldState held;
  const ZeroRules& rules = buckets.rules;
  for (const BucketLayout& bucket : buckets.layouts) {
    const int64_t all = bucket.num_elements;
    const int64_t owned = rules.divides_states ? all / buckets.num_ranks : all;
    held.weights += whole_bytes(precision.compute, rules.releases_values ? owned : all);
    if (!bucket.is_trained) continue;
    held.gradients +=
        whole_bytes(rules.gradient_sums(precision.reduce, precision.master), rules.scatters_gradients ? owned : all);
    const int64_t states = precision.master == precision.compute ? 2 : 3;
    held.optimizer += whole_bytes(precision.master, states * owned);
  }
  return held;
}

}  // namespace

HeldState held_state(const Plan& plan, int64_t rank) {
  HeldState held;
  for (size_t index = 0; index < plan.modules.size(); ++index) {
    const ModulePlan& module = plan.modules[index];
    if (module.is_encoder() && module.is_in_pipeline()) continue;
    const std::optional<RankGroups> groups = rank_groups(plan, index, rank);
    if (!groups) continue;
    for (const StageContent& stage : stages_of(plan, index, *groups)) {
      held += held_in(stage.buckets(module, false), plan.precision);
      if (module.ep > 1) held += held_in(stage.buckets(module, true), plan.precision);
    }
  }
  return held;
}

}  // namespace weft
