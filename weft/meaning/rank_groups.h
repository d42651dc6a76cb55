#pragma once

#include <optional>
#include <vector>

#include "weft/mesh/mesh.h"
#include "weft/plan/plan.h"

namespace weft {

/// Where a rank lies along the axes of a module's mesh.
struct RankPlace {
  int64_t tp = 0, cp = 0, dp = 0, pp = 0;
};

/// Of a module of a legal plan.
Mesh legal_mesh_of(const ModulePlan& module);

/// Of one of the mesh's ranks.
RankPlace place_in(const Mesh& mesh, int64_t rank);

/// The ranks that one rank of a module works with. Each group has the rank itself, alone where it needs nobody, and the
/// same order on all of its ranks.
struct RankGroups {
  RankPlace place;
  std::vector<int64_t> tensor;    ///< have parts of the same weights: tp
  std::vector<int64_t> context;   ///< share out the rows of a microbatch: cp
  std::vector<int64_t> ulysses;   ///< of these, neighbours that exchange heads for rows
  std::vector<int64_t> ring;      ///< of these, those that pass keys around
  std::vector<int64_t> replicas;  ///< share out the samples of a step: dp
  std::vector<int64_t> data;      ///< have the same weights, experts apart: cp and dp together
  std::vector<int64_t> pipeline;  ///< by pipeline rank
  std::vector<int64_t> balance;   ///< whose routers see one microbatch: cp, with tp where experts are spread over it
  std::vector<int64_t> routed;    ///< whose routers see a step's rows: `data`, with tp where experts are over it
  std::vector<int64_t> experts;   ///< of `routed`, neighbours that share out the experts
  std::vector<int64_t> same_experts;  ///< of `routed`, those with the same experts
  std::vector<int64_t> same_keys;     ///< of `tensor`, those with copies of the same key head
  std::vector<int64_t> tied_ends;     ///< of `pipeline`, the two whose copies of a tied table have one gradient
};

/// Nothing where the rank has no part of the module. The plan must be legal.
std::optional<RankGroups> rank_groups(const Plan& plan, size_t module, int64_t rank);

/// A rank at an end of the bridge that brings an encoder's rows to the llm.
struct BridgeRank {
  int64_t rank = 0;
  std::optional<int64_t> makes;  ///< rows, on the encoder's last stage: as this data-parallel rank of it
  std::optional<int64_t> takes;  ///< rows, on the stage where the llm begins: as this data-parallel rank of the llm
};

/// All of them, by rank. The module is an encoder beside the llm's pipeline, and the plan legal.
std::vector<BridgeRank> bridge_ranks(const Plan& plan, size_t module);

}  // namespace weft
