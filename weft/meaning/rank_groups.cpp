#include "weft/meaning/rank_groups.h"

#include <algorithm>
#include <initializer_list>

#include "weft/base/check.h"
#include "weft/meaning/tied_table.h"
#include "weft/meaning/trainable.h"
#include "weft/mesh/expert_axes.h"
#include "weft/mesh/head_share.h"
#include "weft/plan/module_mesh.h"

namespace weft {
namespace {

/// The rank's group along the axes that the mesh has of these.
template <typename Axes = std::initializer_list<std::string_view>>
std::vector<int64_t> group_along(const Mesh& mesh, int64_t rank, const Axes& axes) {
  AxisList present;
  for (const std::string_view axis : axes)
    if (const auto found = mesh.grid().find(axis)) present.push_back(*found);
  return mesh.group_of(rank, present);
}

/// Of ranks in a row, taken `size` at a time: the run that the one at `place` is in.
std::vector<int64_t> neighbours(const std::vector<int64_t>& ranks, int64_t place, int64_t size) {
  const auto first = ranks.begin() + place / size * size;
  return {first, first + size};
}

/// And those at the same place of their runs.
std::vector<int64_t> counterparts(const std::vector<int64_t>& ranks, int64_t place, int64_t size) {
  std::vector<int64_t> found;
  for (auto i = static_cast<size_t>(place % size); i < ranks.size(); i += static_cast<size_t>(size))
    found.push_back(ranks[i]);
  return found;
}

/// One module has one number of key heads.
std::vector<int64_t> same_keys_of(const Module& module, const std::vector<int64_t>& tensor, int64_t tp_rank) {
  for (const Block& layer : module.distinct_layers) {
    for (const Op& op : layer.ops) {
      const auto* attention = std::get_if<Attention>(&op.shape);
      if (attention == nullptr) continue;
      const HeadShare share = share_of_heads({attention->heads, attention->kv_heads, attention->head_dim},
                                             static_cast<int64_t>(tensor.size()), tp_rank);
      const auto first = tensor.begin() + (tp_rank - share.place);
      return {first, first + share.sharers};
    }
  }
  return {tensor[static_cast<size_t>(tp_rank)]};
}

std::vector<int64_t> tied_ends_of(const Plan& plan, const std::vector<int64_t>& pipeline, int64_t pp_rank) {
  const std::vector<int64_t> alone = {pipeline[static_cast<size_t>(pp_rank)]};
  std::vector<StagePart> parts;
  list_stage_parts(plan, parts);
  // Frozen copies need nothing to stay equal.
  if (!tied_table(plan, parts).is_summed_over_ranks || !Trainable(plan).trains_table()) return alone;
  const int64_t entry = place_of_stage(plan, llm_entry_stage(plan, parts)).rank;
  const int64_t exit = place_of_stage(plan, num_stages(plan) - 1).rank;
  if (pp_rank != entry && pp_rank != exit) return alone;
  return {pipeline[static_cast<size_t>(std::min(entry, exit))], pipeline[static_cast<size_t>(std::max(entry, exit))]};
}

}  // namespace

Mesh legal_mesh_of(const ModulePlan& module) {
  Result<Mesh> mesh = mesh_of(module);
  WEFT_CHECK(mesh.ok(), "{}", mesh.error().message());
  return *std::move(mesh);
}

RankPlace place_in(const Mesh& mesh, int64_t rank) {
  const int64_t position = mesh.position_of(rank);
  const auto along = [&](std::string_view axis) {
    const auto found = mesh.grid().find(axis);
    return found ? mesh.grid().coordinate(position, *found) : 0;
  };
  return {.tp = along("tp"), .cp = along("cp"), .dp = along("dp"), .pp = along("pp")};
}

std::optional<RankGroups> rank_groups(const Plan& plan, size_t module, int64_t rank) {
  const ModulePlan& settings = plan.modules[module];
  const Mesh mesh = legal_mesh_of(settings);
  if (!mesh.contains(rank)) return std::nullopt;
  RankGroups groups{.place = place_in(mesh, rank),
                    .tensor = group_along(mesh, rank, {"tp"}),
                    .context = group_along(mesh, rank, {"cp"}),
                    .replicas = group_along(mesh, rank, {"dp"}),
                    .data = group_along(mesh, rank, {"cp", "dp"}),
                    .pipeline = group_along(mesh, rank, {"pp"}),
                    .balance = {},
                    .routed = {},
                    .experts = {rank},
                    .tied_ends = {rank}};
  groups.ulysses = neighbours(groups.context, groups.place.cp, settings.cp_ulysses);
  groups.ring = counterparts(groups.context, groups.place.cp, settings.cp_ulysses);
  const bool over_tp = settings.experts_over_tp;
  groups.balance = group_along(mesh, rank, routing_axes(over_tp));
  groups.routed = group_along(mesh, rank, expert_axes(over_tp));
  groups.same_experts = groups.data;
  if (settings.ep > 1) {
    const Result<Mesh> experts = expert_view(mesh, settings.ep, over_tp);
    WEFT_CHECK(experts.ok(), "{}", experts.error().message());
    groups.experts = group_along(*experts, rank, {"ep"});
    groups.same_experts = group_along(*experts, rank, {"edp"});
  }
  groups.same_keys = same_keys_of(*plan.model.find(settings.kind), groups.tensor, groups.place.tp);
  if (!settings.is_encoder()) groups.tied_ends = tied_ends_of(plan, groups.pipeline, groups.place.pp);
  return groups;
}

std::vector<BridgeRank> bridge_ranks(const Plan& plan, size_t module) {
  const ModulePlan& encoder = plan.modules[module];
  const int64_t entry = place_of_stage(plan, llm_entry_stage(plan)).rank;
  std::vector<BridgeRank> found;
  const Mesh made = legal_mesh_of(encoder), taken = legal_mesh_of(plan.llm());
  for (const int64_t rank : made.ranks()) {
    const RankPlace place = place_in(made, rank);
    if (place.pp == encoder.pp - 1) found.push_back({.rank = rank, .makes = place.dp, .takes = {}});
  }
  std::sort(found.begin(), found.end(), [](const BridgeRank& a, const BridgeRank& b) { return a.rank < b.rank; });
  const auto num_makers = static_cast<std::ptrdiff_t>(found.size());
  for (const int64_t rank : taken.ranks()) {
    const RankPlace place = place_in(taken, rank);
    if (place.pp != entry) continue;
    const auto makers_end = found.begin() + num_makers;
    const auto maker = std::lower_bound(found.begin(), makers_end, rank,
                                        [](const BridgeRank& known, int64_t other) { return known.rank < other; });
    if (maker != makers_end && maker->rank == rank) {
      maker->takes = place.dp;
    } else {
      found.push_back({.rank = rank, .makes = {}, .takes = place.dp});
    }
  }
  std::sort(found.begin(), found.end(), [](const BridgeRank& a, const BridgeRank& b) { return a.rank < b.rank; });
  return found;
}

}  // namespace weft
