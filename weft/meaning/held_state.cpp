#include "weft/meaning/held_state.h"

#include <map>

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

/// Calls with the buckets of what a rank at some place of a module has.
template <typename Visit>
void for_each_buckets(const Plan& plan, size_t module, const RankPlace& place, const Visit& visit) {
  const ModulePlan& settings = plan.modules[module];
  for (const StageContent& stage : stages_of(plan, module, place)) {
    visit(stage.buckets(settings, false));
    if (settings.ep > 1) visit(stage.buckets(settings, true));
  }
}

/// Inline encoders lie in the llm's stages.
bool has_own_stages(const ModulePlan& module) {
  return !module.is_encoder() || !module.is_in_pipeline();
}

}  // namespace

HeldState held_state(const Plan& plan, int64_t rank) {
  HeldState held;
  for (size_t module = 0; module < plan.modules.size(); ++module) {
    if (!has_own_stages(plan.modules[module])) continue;
    const std::optional<RankGroups> groups = rank_groups(plan, module, rank);
    if (!groups) continue;
    for_each_buckets(plan, module, groups->place,
                     [&](const StageBuckets& buckets) { held += held_in(buckets, plan.precision); });
  }
  return held;
}

std::vector<int64_t> snapshot_bytes(const Plan& plan) {
  std::vector<int64_t> bytes(static_cast<size_t>(plan.world_size), 0);
  for (size_t module = 0; module < plan.modules.size(); ++module) {
    if (!has_own_stages(plan.modules[module])) continue;
    const Mesh mesh = legal_mesh_of(plan.modules[module]);
    // Of the ranks' places only these two say which weights they have. Large clusters have thousands of ranks.
    std::map<std::pair<int64_t, int64_t>, int64_t> known;
    for (const int64_t rank : mesh.ranks()) {
      const RankPlace place = place_in(mesh, rank);
      const auto found = known.try_emplace({place.tp, place.pp}, 0);
      int64_t& own = found.first->second;
      if (found.second) {
        for_each_buckets(plan, module, place,
                         [&](const StageBuckets& buckets) { own += written_from(buckets, plan.precision); });
      }
      bytes[static_cast<size_t>(rank)] += own;
    }
  }
  return bytes;
}

}  // namespace weft
