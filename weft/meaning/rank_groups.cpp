#include "weft/meaning/rank_groups.h"

#include <algorithm>

#include "weft/base/check.h"
#include "weft/meaning/tied_table.h"
#include "weft/mesh/head_share.h"
#include "weft/plan/module_mesh.h"

namespace weft {
namespace {

RankGroup named(std::string name, std::vector<int64_t> ranks, int64_t rank) {
  RankGroup group{.name = std::move(name), .ranks = std::move(ranks)};
  const auto found = std::find(group.ranks.begin(), group.ranks.end(), rank);
  WEFT_CHECK(found != group.ranks.end(), "rank {} is not in group '{}'", rank, group.name);
  group.rank = found - group.ranks.begin();
  return group;
}

/// Every rank of a group with the same quotient, or the same remainder, as one of them.
struct Neighbours {
  std::vector<int64_t> same_quotient;
  std::vector<int64_t> same_remainder;

  Neighbours(const RankGroup& group, int64_t divisor) {
    for (int64_t i = 0; i < group.size(); ++i) {
      const int64_t rank = group.ranks[static_cast<size_t>(i)];
      if (i / divisor == group.rank / divisor) same_quotient.push_back(rank);
      if (i % divisor == group.rank % divisor) same_remainder.push_back(rank);
    }
  }
};

}  // namespace

RankGroup group_along(const Mesh& mesh, int64_t rank, std::initializer_list<std::string_view> names) {
  const AxisList axes = mesh.grid().axes_named(names);
  return named(mesh.group_name(axes), mesh.group_of(rank, axes), rank);
}

ContextRanks context_ranks(const Mesh& mesh, int64_t rank, int64_t ulysses) {
  ContextRanks ranks;
  ranks.all = group_along(mesh, rank, {"cp"});
  Neighbours neighbours(ranks.all, ulysses);
  ranks.ulysses = named("ulysses", std::move(neighbours.same_quotient), rank);
  ranks.ring = named("ring", std::move(neighbours.same_remainder), rank);
  return ranks;
}

ExpertRanks expert_ranks(const Mesh& mesh, int64_t rank, int64_t ep) {
  Neighbours neighbours(group_along(mesh, rank, {"cp", "dp"}), ep);
  return {.sharers = named("ep", std::move(neighbours.same_quotient), rank),
          .copies = named("same experts", std::move(neighbours.same_remainder), rank)};
}

std::optional<RankGroup> same_keys(const Plan& plan, const RankGroup& tensor) {
  for (const Op& op : plan.model.modules.back().layer_kinds.front().ops) {
    const auto* attention = std::get_if<Attention>(&op.shape);
    if (attention == nullptr) continue;
    const HeadShare share =
        share_of_heads({attention->heads, attention->kv_heads, attention->head_dim}, tensor.size(), tensor.rank);
    if (share.sharers == 1) return std::nullopt;
    const auto first = tensor.ranks.begin() + (tensor.rank - share.place);
    return RankGroup{.name = "same keys", .ranks = {first, first + share.sharers}, .rank = share.place};
  }
  return std::nullopt;
}

std::optional<RankGroup> table_ranks(const Plan& plan, const Mesh& mesh, int64_t rank) {
  std::vector<StagePart> parts;
  list_stage_parts(plan, parts);
  if (!tied_table(plan, parts).is_summed_over_ranks || plan.workload.is_frozen(ModuleKind::kLlm)) return std::nullopt;
  const int32_t entry = place_of_stage(plan, llm_entry_stage(plan, parts)).rank;
  const int32_t exit = place_of_stage(plan, num_stages(plan) - 1).rank;
  const RankGroup pipeline = group_along(mesh, rank, {"pp"});
  if (pipeline.rank != entry && pipeline.rank != exit) return std::nullopt;
  return named("embedding",
               {pipeline.ranks[static_cast<size_t>(std::min(entry, exit))],
                pipeline.ranks[static_cast<size_t>(std::max(entry, exit))]},
               rank);
}

std::vector<BridgeEnd> bridge_ends(const Plan& plan, size_t encoder) {
  const auto mesh = mesh_of(plan.modules[encoder]), text_mesh = mesh_of(plan.llm());
  WEFT_CHECK(mesh.ok() && text_mesh.ok(), "a plan with a module that has no mesh");
  const auto is_at = [](const Mesh& whole, int64_t rank, int64_t pipeline_rank) {
    return whole.contains(rank) && whole.coordinates_of(rank)[whole.grid().axis("pp")] == pipeline_rank;
  };
  const int64_t text_row = place_of_stage(plan, llm_entry_stage(plan)).rank;
  std::vector<BridgeEnd> ends;
  for (int64_t rank = 0; rank < plan.world_size; ++rank) {
    BridgeEnd end{.rank = rank, .makes = {}, .takes = is_at(*text_mesh, rank, text_row)};
    if (is_at(*mesh, rank, plan.modules[encoder].pp - 1))
      end.makes = mesh->coordinates_of(rank)[mesh->grid().axis("dp")];
    if (end.makes || end.takes) ends.push_back(end);
  }
  return ends;
}

}  // namespace weft
