#include "weft/cost/block_setting.h"

#include <algorithm>

#include "weft/meaning/block_exchanges.h"
#include "weft/spec/num_experts.h"

namespace weft {

bool places_whole_rows(const Plan& plan, const ModulePlan& module) {
  if (module.is_encoder() || module.tp == 1) return false;
  return std::any_of(plan.modules.begin(), plan.modules.end(),
                     [&](const ModulePlan& other) { return other.is_encoder() && come_whole(module, other); });
}

bool gives_media_rows(const ModulePlan& module) {
  return module.is_encoder() && module.is_in_pipeline() && module.cp > 1;
}

bool divides_parts(const Plan& plan, const ModulePlan& module) {
  return module.is_encoder() && output_use(plan, module).divides_parts;
}

BlockSetting setting_of(const Plan& plan, const ModulePlan& m, const ModulePlacements& placements) {
  const Cluster& cluster = plan.cluster;
  BlockSetting setting{.tp = m.tp,
                       .cp = m.cp,
                       .cp_ulysses = m.cp_ulysses,
                       .ep = m.ep,
                       .sequence_parallel = m.sequence_parallel,
                       .experts_over_tp = m.experts_over_tp,
                       .places_whole_rows = places_whole_rows(plan, m),
                       .gives_media_rows = gives_media_rows(m),
                       .divides_parts = divides_parts(plan, m),
                       .balances_experts = !m.is_encoder() && balances_experts(plan.model),
                       .overlap_tp = plan.overlap_tp,
                       .precision = plan.precision.compute,
                       .attention = plan.workload.attention};
  if (m.tp > 1) setting.tp_link = link_of(cluster, placements.tp);
  if (m.ep > 1) setting.ep_link = link_of(cluster, placements.ep);
  if (setting.balances_experts && placements.balance.num_ranks > 1)
    setting.balance_link = link_of(cluster, placements.balance);
  if (m.cp > 1) {
    setting.cp_link = link_of(cluster, placements.cp);
    // Ulysses groups are neighbours along cp; the ring goes from one such group to the next.
    const GroupPlacement& whole = placements.cp;
    const int64_t ring = m.cp / m.cp_ulysses;
    GroupPlacement inner = whole;
    inner.num_ranks = m.cp_ulysses;
    inner.most_ranks_per_node = std::min(whole.most_ranks_per_node, m.cp_ulysses);
    inner.num_nodes = (m.cp_ulysses + inner.most_ranks_per_node - 1) / std::max<int64_t>(1, inner.most_ranks_per_node);
    if (m.cp_ulysses <= whole.fewest_ranks_per_node) {
      inner.link = LinkKind::kWithinNode;
      inner.num_nodes = 1;
      inner.groups_per_node = 0;
    }
    GroupPlacement outer = whole;
    outer.num_ranks = ring;
    // As many rings run beside each other as a Ulysses group has ranks, and those on one node share its cards.
    outer.most_ranks_per_node = std::max<int64_t>(1, whole.most_ranks_per_node / m.cp_ulysses);
    if (outer.link == LinkKind::kBetweenNodes)
      outer.groups_per_node = whole.groups_per_node * std::min(m.cp_ulysses, whole.most_ranks_per_node);
    setting.ulysses_link = link_of(cluster, inner);
    setting.ring_link = link_of(cluster, outer);
  }
  return setting;
}

}  // namespace weft
