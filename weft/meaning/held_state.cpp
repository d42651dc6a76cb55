#include "weft/meaning/held_state.h"

#include "weft/meaning/stage_buckets.h"

namespace weft {
namespace {

int64_t whole_bytes(Precision precision, int64_t elements) {
  return static_cast<int64_t>(num_bytes(precision)) * elements;
}

HeldState held_by(const OptimizerBuckets& optimizer, const PrecisionPlan& precision) {
  const ZeroRules& rules = optimizer.rules;
  HeldState held;
  for (const BucketLayout& bucket : optimizer.buckets) {
    const int64_t all = bucket.num_elements;
    const int64_t owned = optimizer.owned(bucket);
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
  for (const StageBuckets& stage : stage_buckets(plan, rank)) {
    for (const OptimizerBuckets& optimizer : stage.optimizers) held += held_by(optimizer, plan.precision);
  }
  return held;
}

}  // namespace weft
