#include "weft/cost/module_placements.h"

#include "weft/meaning/expert_ranks.h"

namespace weft {

ModulePlacements place_module(const Cluster& cluster, const ModulePlan& module) {
  ModulePlacements placements;
  if (module.tp > 1) placements.tp = placement_along(cluster, module, {"tp"});
  if (module.cp > 1) placements.cp = placement_along(cluster, module, {"cp"});
  placements.balance =
      module.experts_over_tp && module.tp > 1 ? placement_along(cluster, module, {"tp", "cp"}) : placements.cp;
  if (module.ep > 1) placements.ep = expert_placement(cluster, module, "ep");
  if (module.pp > 1) placements.next_stage = placement_along(cluster, module, {"pp"});
  if (module.dp * module.cp > 1) {
    placements.gradients = placement_along(cluster, module, {"cp", "dp"});
    placements.expert_gradients = placements.gradients;
  }
  if (module.ep > 1 && num_expert_ranks(module) > 1)
    placements.expert_gradients = expert_placement(cluster, module, "edp");
  return placements;
}

}  // namespace weft
