#include "weft/pipeline/module_groups.h"

#include "weft/base/check.h"
#include "weft/meaning/group_names.h"
#include "weft/meaning/trainable.h"

namespace weft {
namespace {

Result<std::optional<Group>> group_of_several(World& world, const std::string& name,
                                              const std::vector<int64_t>& ranks) {
  if (ranks.size() == 1) return std::optional<Group>();
  WEFT_TRY(Group group, world.group(name, ranks));
  return std::optional(std::move(group));
}

}  // namespace

Result<ModuleGroups> make_groups(World& world, const Plan& plan, size_t module) {
  const ModulePlan& settings = plan.modules[module];
  const std::optional<RankGroups> ranks = rank_groups(plan, module, world.rank());
  WEFT_CHECK(ranks.has_value(), "rank {} has no part of {}", world.rank(), name_of(settings.kind));
  // Ranks make the groups that they have in common in this order.
  WEFT_TRY(const Mesh tensor_mesh, Mesh::create({{group_names::kTensor, settings.tp}}, ranks->tensor));
  WEFT_TRY(MeshGroups tensor, MeshGroups::create(world, tensor_mesh));
  WEFT_TRY(Group data, world.group(group_names::kData, ranks->data));
  WEFT_TRY(Group pipeline, world.group(group_names::kPipeline, ranks->pipeline));
  ModuleGroups groups{.place = ranks->place,
                      .tensor = std::move(tensor),
                      .data = std::move(data),
                      .pipeline = std::move(pipeline),
                      .balance = {},
                      .experts = {},
                      .same_experts = {},
                      .same_keys = {},
                      .tied_ends = {}};
  if (settings.experts_over_tp) {
    WEFT_TRY(groups.balance, world.group(group_names::kBalance, ranks->balance));
  }
  if (settings.ep > 1) {
    WEFT_TRY(groups.experts, world.group(group_names::kExperts, ranks->experts));
    WEFT_TRY(groups.same_experts, world.group(group_names::kSameExperts, ranks->same_experts));
  }
  WEFT_TRY(groups.tied_ends, group_of_several(world, group_names::kTiedEnds, ranks->tied_ends));
  if (trains(plan, settings.kind)) {
    WEFT_TRY(groups.same_keys, group_of_several(world, group_names::kSameKeys, ranks->same_keys));
  }
  return groups;
}

}  // namespace weft
