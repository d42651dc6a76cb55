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

int64_t written_from(const StageBuckets& buckets, const PrecisionPlan& precision) {
  int64_t bytes = 0;
  for (const BucketLayout& bucket : buckets.layouts) {
    bytes += bucket.is_trained ? whole_bytes(precision.master, 3 * bucket.num_elements)
                               : whole_bytes(precision.compute, bucket.num_elements);
  }
  // Shares and copies alike: all ranks of the group together write everything once.
  return (bytes + buckets.num_ranks - 1) / buckets.num_ranks;
}

/// Calls with the buckets of everything that a rank has.
template <typename Visit>
void for_each_buckets(const Plan& plan, int64_t rank, const Visit& visit) {
  for (size_t index = 0; index < plan.modules.size(); ++index) {
    const ModulePlan& module = plan.modules[index];
    if (module.is_encoder() && module.is_in_pipeline()) continue;
    const std::optional<RankGroups> groups = rank_groups(plan, index, rank);
    if (!groups) continue;
    for (const StageContent& stage : stages_of(plan, index, *groups)) {
      visit(stage.buckets(module, false));
      if (module.ep > 1) visit(stage.buckets(module, true));
    }
  }
}

}  // namespace

HeldState held_state(const Plan& plan, int64_t rank) {
  HeldState held;
  for_each_buckets(plan, rank, [&](const StageBuckets& buckets) { held += held_in(buckets, plan.precision); });
  return held;
}

int64_t snapshot_bytes(const Plan& plan, int64_t rank) {
  int64_t bytes = 0;
  for_each_buckets(plan, rank, [&](const StageBuckets& buckets) { bytes += written_from(buckets, plan.precision); });
  return bytes;
}

}  // namespace weft
