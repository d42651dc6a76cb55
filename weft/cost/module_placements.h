#pragma once

#include "weft/cost/group_link.h"

namespace weft {

/// How the groups of a module's ranks lie on the cluster's nodes, by what they are for. Groups of one rank lie nowhere.
/// Depends on ranks, degrees and axis order alone.
struct ModulePlacements {
  GroupPlacement tp, cp, ep;
  GroupPlacement balance;           ///< ranks whose routers see one microbatch (RankGroups::balance)
  GroupPlacement next_stage;        ///< a rank and its neighbour along pp
  GroupPlacement gradients;         ///< over which gradients are summed
  GroupPlacement expert_gradients;  ///< the same for experts
};

ModulePlacements place_module(const Cluster& cluster, const ModulePlan& module);

/// The same in two parts: groups that blocks communicate in, which is all that setting_of asks for, and the others.
ModulePlacements place_blocks(const Cluster& cluster, const ModulePlan& module);
void place_copies_and_stages(const Cluster& cluster, const ModulePlan& module, ModulePlacements& placements);

}  // namespace weft
