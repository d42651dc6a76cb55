#include "weft/cost/module_placements.h"

#include "weft/meaning/expert_ranks.h"
#include "weft/meaning/weight_copies.h"
#include "weft/mesh/expert_axes.h"

namespace weft {

ModulePlacements place_module(const Cluster& cluster, const ModulePlan& module) {
  ModulePlacements placements = place_blocks(cluster, module);
  place_copies_and_stages(cluster, module, placements);
  return placements;
}

ModulePlacements place_blocks(const Cluster& cluster, const ModulePlan& module) {
  ModulePlacements placements;
  if (module.tp > 1) placements.tp = placement_along(cluster, module, {"tp"});
  if (module.cp > 1) placements.cp = placement_along(cluster, module, {"cp"});
  placements.balance = placements.cp;
  if (const auto axes = routing_axes(module.experts_over_tp); axes.size() > 1 && module.tp > 1)
    placements.balance = placement_along(cluster, module, {axes.begin(), axes.end()});
  if (module.ep > 1) placements.ep = expert_placement(cluster, module, "ep");
  return placements;
}

void place_copies_and_stages(const Cluster& cluster, const ModulePlan& module, ModulePlacements& placements) {
  if (module.pp > 1) placements.next_stage = placement_along(cluster, module, {"pp"});
  if (num_weight_copies(module) > 1) {
    placements.gradients = placement_along(cluster, module, {"cp", "dp"});
    placements.expert_gradients = placements.gradients;
  }
  if (module.ep > 1 && num_expert_ranks(module) > 1)
    placements.expert_gradients = expert_placement(cluster, module, "edp");
}

}  // namespace weft
