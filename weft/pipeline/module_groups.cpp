#include "weft/pipeline/module_groups.h"

#include "weft/base/check.h"
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
  WEFT_TRY(const Mesh tensor_mesh, Mesh::create({{"tp", settings.tp}}, ranks->tensor));
  WEFT_TRY(MeshGroups tensor, MeshGroups::create(world, tensor_mesh));
  WEFT_TRY(Group data, world.group("data", ranks->data));
  WEFT_TRY(Group pipeline, world.group("pp", ranks->pipeline));
  ModuleGroups groups{.place = ranks->place,
                      .tensor = std::move(tensor),
                      .data = std::move(data),
                      .pipeline = std::move(pipeline),
                      .experts = {},
                      .same_experts = {},
                      .same_keys = {},
                      .tied_ends = {}};
  if (settings.ep > 1) {
    WEFT_TRY(groups.experts, world.group("ep", ranks->experts));
    WEFT_TRY(groups.same_experts, world.group("same experts", ranks->same_experts));
  }
  WEFT_TRY(groups.tied_ends, group_of_several(world, "tied ends", ranks->tied_ends));
  if (trains(plan, settings.kind)) {
    WEFT_TRY(groups.same_keys, group_of_several(world, "same keys", ranks->same_keys));
  }
  return groups;
}

}  // namespace weft
