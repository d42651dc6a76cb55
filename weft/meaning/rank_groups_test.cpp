#include "weft/meaning/rank_groups.h"

#include <algorithm>
#include <array>
#include <map>
#include <set>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "tests/support/meaning/random_plan.h"
#include "tests/support/source_tree.h"
#include "weft/meaning/tied_table.h"
#include "weft/meaning/trainable.h"
#include "weft/mesh/head_share.h"
#include "weft/plan/module_mesh.h"
#include "weft/plan/plan_json.h"
#include "weft/spec/model_reader.h"

namespace weft {
namespace {

using Ranks = std::vector<int64_t>;

Plan plan_of_groups(const std::string& name) {
  return *read_plan_file(source_tree().string() + "/scenarios/plans/" + name + ".json");
}

Model model_of_groups(const std::string& fixture) {
  return *read_model_file(source_tree().string() + "/tests/parity/fixtures/" + fixture);
}

struct GroupKind {
  const char* name;
  Ranks RankGroups::*ranks;
};
constexpr std::array kKinds = {GroupKind{"tensor", &RankGroups::tensor},
                               GroupKind{"context", &RankGroups::context},
                               GroupKind{"ulysses", &RankGroups::ulysses},
                               GroupKind{"ring", &RankGroups::ring},
                               GroupKind{"replicas", &RankGroups::replicas},
                               GroupKind{"data", &RankGroups::data},
                               GroupKind{"pipeline", &RankGroups::pipeline},
                               GroupKind{"balance", &RankGroups::balance},
                               GroupKind{"routed", &RankGroups::routed},
                               GroupKind{"experts", &RankGroups::experts},
                               GroupKind{"same experts", &RankGroups::same_experts},
                               GroupKind{"same keys", &RankGroups::same_keys},
                               GroupKind{"tied ends", &RankGroups::tied_ends}};

/// Of two ranks, by their places along all axes, whether they are in each other's group: as the words of the header
/// say, pair by pair, without a group in sight.
bool work_together(const Plan& plan, size_t index, const std::string& kind, const RankPlace& a, const RankPlace& b) {
  const ModulePlan& module = plan.modules[index];
  const auto differ_only_in = [&](bool tp, bool cp, bool dp, bool pp) {
    return (tp || a.tp == b.tp) && (cp || a.cp == b.cp) && (dp || a.dp == b.dp) && (pp || a.pp == b.pp);
  };
  const auto joined = [&](const RankPlace& place) {
    int64_t found = 0, stride = 1;
    for (const std::string& axis : module.axis_order) {
      if (axis == "pp" || (axis == "tp" && !module.experts_over_tp)) continue;
      found += stride * (axis == "tp" ? place.tp : axis == "cp" ? place.cp : place.dp);
      stride *= module.degree(axis);
    }
    return found;
  };
  const bool over_tp = module.experts_over_tp;
  if (kind == "tensor") return differ_only_in(true, false, false, false);
  if (kind == "context") return differ_only_in(false, true, false, false);
  if (kind == "replicas") return differ_only_in(false, false, true, false);
  if (kind == "pipeline") return differ_only_in(false, false, false, true);
  if (kind == "data") return differ_only_in(false, true, true, false);
  if (kind == "ulysses")
    return differ_only_in(false, true, false, false) && a.cp / module.cp_ulysses == b.cp / module.cp_ulysses;
  if (kind == "ring")
    return differ_only_in(false, true, false, false) && a.cp % module.cp_ulysses == b.cp % module.cp_ulysses;
  if (kind == "balance") return differ_only_in(over_tp, true, false, false);
  if (kind == "routed") return differ_only_in(over_tp, true, true, false);
  if (kind == "experts")
    return differ_only_in(over_tp, true, true, false) && joined(a) / module.ep == joined(b) / module.ep;
  if (kind == "same experts")
    return differ_only_in(over_tp, true, true, false) && joined(a) % module.ep == joined(b) % module.ep;
  if (kind == "same keys") {
    for (const Op& op : plan.model.find(module.kind)->distinct_layers.front().ops) {
      const auto* attention = std::get_if<Attention>(&op.shape);
      if (attention == nullptr) continue;
      const auto share = [&](const RankPlace& place) {
        return share_of_heads({attention->heads, attention->kv_heads, 1}, module.tp, place.tp);
      };
      return differ_only_in(true, false, false, false) && share(a).first_kv_head == share(b).first_kv_head;
    }
  }
  // Tied ends.
  if (a.pp == b.pp) return differ_only_in(false, false, false, false);
  if (module.is_encoder() || !plan.model.has_tied_embeddings || !Trainable(plan).trains_table()) return false;
  const int64_t first = place_of_stage(plan, llm_entry_stage(plan)).rank;
  const int64_t last = place_of_stage(plan, num_stages(plan) - 1).rank;
  return differ_only_in(false, false, false, true) && std::set{a.pp, b.pp} == std::set{first, last};
}

TEST(RankGroups, AreTheRanksThatTheirWordsSayInOneOrder) {
  const std::vector<Model> models = {model_of_groups("qwen2_5_omni"), model_of_groups("qwen2_vl_tied"),
                                     model_of_groups("qwen3_moe_norm"), model_of_groups("qwen2_tied")};
  std::map<std::string, size_t> largest;
  for (uint64_t seed = 0; seed < 200; ++seed) {
    const Plan plan = random_plan(models[seed % models.size()], seed);
    SCOPED_TRACE(fmt::format("seed {}: {}", seed, settings_text(plan)));
    for (size_t module = 0; module < plan.modules.size(); ++module) {
      std::map<int64_t, RankGroups> all;
      for (int64_t rank = 0; rank < plan.world_size; ++rank)
        if (const auto groups = rank_groups(plan, module, rank)) all.emplace(rank, *groups);
      ASSERT_EQ(all.size(), plan.modules[module].ranks.size());
      for (const auto& [rank, groups] : all) {
        EXPECT_EQ(groups.tensor[static_cast<size_t>(groups.place.tp)], rank);
        EXPECT_EQ(groups.context[static_cast<size_t>(groups.place.cp)], rank);
        EXPECT_EQ(groups.replicas[static_cast<size_t>(groups.place.dp)], rank);
        EXPECT_EQ(groups.pipeline[static_cast<size_t>(groups.place.pp)], rank);
        for (const GroupKind& kind : kKinds) {
          const Ranks& own = groups.*kind.ranks;
          std::set<int64_t> expected;
          for (const auto& [other, its] : all)
            if (work_together(plan, module, kind.name, groups.place, its.place)) expected.insert(other);
          EXPECT_EQ(std::set<int64_t>(own.begin(), own.end()), expected) << kind.name << " of rank " << rank;
          EXPECT_EQ(own.size(), expected.size()) << kind.name << " of rank " << rank;
          for (const int64_t other : own)
            EXPECT_EQ(all.at(other).*kind.ranks, own) << kind.name << " of ranks " << rank << " and " << other;
          largest[kind.name] = std::max(largest[kind.name], own.size());
        }
      }
    }
  }
  for (const GroupKind& kind : kKinds) EXPECT_GT(largest[kind.name], 1u) << kind.name << ": never drawn";
}

TEST(RankGroups, ByHand) {
  // tp 2, cp 1, dp 2, pp 2, the innermost axis first.
  const Plan plan = plan_of_groups("llama3-8b_gpipe_tp2_pp2_dp2");
  const RankGroups groups = *rank_groups(plan, 0, 5);
  EXPECT_EQ(groups.tensor, (Ranks{4, 5}));
  EXPECT_EQ(groups.data, (Ranks{5, 7}));
  EXPECT_EQ(groups.same_experts, groups.data);
  EXPECT_EQ(groups.pipeline, (Ranks{1, 5}));
  EXPECT_EQ(groups.experts, (Ranks{5}));
  EXPECT_EQ(groups.same_keys, (Ranks{5}));
  EXPECT_EQ(groups.tied_ends, (Ranks{5}));
  const RankGroups ulysses = *rank_groups(plan_of_groups("llama3-8b_cp4_ulysses2"), 0, 2);
  EXPECT_EQ(ulysses.context, (Ranks{0, 2, 4, 6})) << "inside of which lies tp 2";
  EXPECT_EQ(ulysses.ulysses, (Ranks{0, 2}));
  EXPECT_EQ(ulysses.ring, (Ranks{2, 6}));
}

TEST(RankGroups, RowsGoFromTheEncodersLastStageToWhereTheLlmBegins) {
  const std::vector<Model> models = {model_of_groups("qwen2_5_omni"), model_of_groups("qwen2_vl_tied")};
  int num_bridges = 0, num_of_both = 0, num_later = 0;
  for (uint64_t seed = 0; seed < 300; ++seed) {
    const Plan plan = random_plan(models[seed % models.size()], seed);
    SCOPED_TRACE(fmt::format("seed {}: {}", seed, settings_text(plan)));
    const size_t llm = plan.modules.size() - 1;
    for (size_t module = 0; module < llm; ++module) {
      const ModulePlan& encoder = plan.modules[module];
      if (encoder.is_in_pipeline()) continue;
      std::map<int64_t, BridgeRank> ends;
      int64_t last = -1;
      for (const BridgeRank& end : bridge_ranks(plan, module)) {
        EXPECT_GT(end.rank, last);
        last = end.rank;
        ends.emplace(end.rank, end);
      }
      const int32_t entry = llm_entry_stage(plan);
      num_later += entry > 0 ? 1 : 0;
      ++num_bridges;
      for (int64_t rank = 0; rank < plan.world_size; ++rank) {
        const auto makes = rank_groups(plan, module, rank), takes = rank_groups(plan, llm, rank);
        const bool is_maker = makes && makes->place.pp == encoder.pp - 1;
        const bool is_taker = takes && takes->place.pp == place_of_stage(plan, entry).rank;
        ASSERT_EQ(ends.contains(rank), is_maker || is_taker) << rank;
        if (!ends.contains(rank)) continue;
        EXPECT_EQ(ends.at(rank).takes, is_taker ? std::optional(takes->place.dp) : std::nullopt) << rank;
        EXPECT_EQ(ends.at(rank).makes, is_maker ? std::optional(makes->place.dp) : std::nullopt) << rank;
        num_of_both += is_maker && is_taker ? 1 : 0;
      }
    }
  }
  EXPECT_GT(num_bridges, 50);
  EXPECT_GT(num_of_both, 0);
  EXPECT_GT(num_later, 0);
}

}  // namespace
}  // namespace weft
