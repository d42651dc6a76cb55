#pragma once

#include <optional>

#include "weft/comm/world.h"
#include "weft/meaning/rank_groups.h"
#include "weft/tensor/mesh_groups.h"

namespace weft {

/// The groups that one rank of a module talks in: of the llm, with inline encoders, or of an encoder beside it.
/// Those of context parallelism are ContextParallel's.
struct ModuleGroups {
  RankPlace place;
  MeshGroups tensor;                  ///< of a mesh with tp alone
  Group data;                         ///< the ranks with the same weights, experts apart
  Group pipeline;                     ///< by pipeline rank
  std::optional<Group> balance;       ///< the ranks whose routers see one microbatch, where experts are over tp
  std::optional<Group> experts;       ///< the ranks that share out the experts; nothing: each has all
  std::optional<Group> same_experts;  ///< then, those with the same experts
  std::optional<Group> same_keys;     ///< those with copies of the same key head, where there are several
  std::optional<Group> tied_ends;     ///< those whose copies of a tied table have one gradient, where there are two
};

/// Every rank of the module's mesh does this alike; this rank must be one of them.
Result<ModuleGroups> make_groups(World& world, const Plan& plan, size_t module);

}  // namespace weft
