#include "weft/cost/block_setting.h"

#include <algorithm>
#include <numeric>
#include <random>

#include <gtest/gtest.h>

#include "tests/support/cost/example_plan.h"
#include "tests/support/source_tree.h"
#include "weft/cost/bridge_time.h"
#include "weft/cost/cost_model.h"
#include "weft/plan/plan_json.h"

namespace weft {
namespace {

Cluster real_links(int64_t nodes, int64_t devices_per_node, int64_t cards) {
  Cluster cluster = ideal_cluster(nodes, devices_per_node);
  cluster.within_node = {.bandwidth_gb_per_s = 300, .latency_us = 3};
  cluster.between_nodes = {.bandwidth_gb_per_s = 25, .latency_us = 6};
  cluster.cards_per_node = cards;
  return cluster;
}

/// The link of the groups along one axis of a mesh whose cp axis is cut into Ulysses groups and rings.
GroupLink link_along(const Cluster& cluster, const ModulePlan& module, const std::string& axis) {
  std::vector<Axis> axes;
  for (const std::string& name : module.axis_order) {
    if (name == "cp") {
      axes.push_back({"ulysses", module.cp_ulysses});
      axes.push_back({"ring", module.cp / module.cp_ulysses});
    } else {
      axes.push_back({name, module.degree(name)});
    }
  }
  const Mesh mesh = *Mesh::create(axes, module.ranks);
  const Topology topology = *Topology::uniform(cluster.devices_per_node, cluster.cards_per_node);
  const auto placements = distinct_placements(mesh, {*mesh.grid().find(axis)}, topology);
  EXPECT_EQ(placements.size(), 1u) << "the meshes of this test are regular";
  return link_of(cluster, placements.front());
}

TEST(BlockSetting, UlyssesGroupsAndRingsLieWhereTheirOwnMeshAxesWould) {
  std::mt19937_64 random(3);
  const auto power = [&](int most) { return int64_t{1} << (random() % static_cast<uint64_t>(most + 1)); };
  int num_compared = 0;
  for (int trial = 0; trial < 2000; ++trial) {
    Degrees degrees{.tp = power(3), .cp = 2 * power(3), .pp = power(1), .dp = power(2)};
    degrees.cp_ulysses = std::min(power(4), degrees.cp);
    std::vector<std::string> axis_order = {"tp", "cp", "dp", "pp"};
    std::shuffle(axis_order.begin(), axis_order.end(), random);
    Plan plan = text_plan(gpt_model({}), real_links(64, 8, power(3)), degrees, 512);
    plan.modules.front().axis_order = axis_order;
    if (plan.world_size % 8 != 0) continue;
    const BlockSetting setting =
        setting_of(plan, plan.modules.front(), place_module(plan.cluster, plan.modules.front()));
    const ModulePlan& m = plan.modules.front();
    const std::string what = m.axis_order[0] + m.axis_order[1] + m.axis_order[2] + " tp " + std::to_string(m.tp) +
                             " cp " + std::to_string(m.cp) + " ulysses " + std::to_string(m.cp_ulysses) + " dp " +
                             std::to_string(m.dp);
    const GroupLink ulysses = link_along(plan.cluster, m, "ulysses"), ring = link_along(plan.cluster, m, "ring");
    if (m.cp_ulysses > 1) {
      EXPECT_EQ(setting.ulysses_link, ulysses) << what;
    }
    if (m.cp > m.cp_ulysses) {
      EXPECT_EQ(setting.ring_link, ring) << what;
    }
    if (HasFailure()) return;
    ++num_compared;
  }
  EXPECT_GT(num_compared, 500);
}

TEST(BlockSetting, ADegreeOfOneNeedsNoLink) {
  const Plan plan = text_plan(gpt_model({}), real_links(1, 8, 8), {.dp = 8}, 512);
  const BlockSetting setting = setting_of(plan, plan.modules.front(), place_module(plan.cluster, plan.modules.front()));
  for (const GroupLink& link : {setting.tp_link, setting.ulysses_link, setting.ring_link, setting.ep_link})
    EXPECT_EQ(link.num_ranks, 1);
}

GroupLink next_stage_link(const Plan& plan) {
  const ModulePlan& module = plan.modules.front();
  return pipeline_link(plan.cluster, module, place_module(plan.cluster, module));
}

TEST(PipelineLink, StagesOnOneNodeHaveItsLinksAndOthersACardTogether) {
  const Plan near = text_plan(gpt_model({}), real_links(1, 8, 2), {.tp = 2, .pp = 4}, 512);
  EXPECT_DOUBLE_EQ(next_stage_link(near).ring_bytes_per_ms, 300e6);
  // Two cards for eight senders.
  const Plan far = text_plan(gpt_model({}), real_links(4, 8, 2), {.tp = 8, .pp = 4}, 512);
  EXPECT_DOUBLE_EQ(next_stage_link(far).ring_bytes_per_ms, 25e6 / 4);
  EXPECT_EQ(next_stage_link(far).num_ranks, 2);
}

TEST(Bridge, AMicrobatchsEmbeddingsTravelOnceAndAreDividedAmongRanksThatDivideRows) {
  Plan plan = *read_plan_file(source_tree().string() + "/scenarios/plans/qwen2.5-vl-7b_disjoint_stream.json");
  plan.cluster.between_nodes = {.bandwidth_gb_per_s = 8, .latency_us = 0};
  plan.cluster.efficiency.between_nodes = 1;
  plan.cluster.cards_per_node = 8;
  plan.workload.images = {Distribution::constant(2), Distribution::constant(1024)};
  CostModel model = *CostModel::create(plan);
  PlanCosts costs;
  model.price(plan, costs);
  // Two images of 256 embeddings, 3584 wide in bf16, over 8 MB/ms, half of the rows to each of two sequence-parallel
  // ranks.
  EXPECT_NEAR(costs.encoders.front().bridge_ms, 2 * 256 * 3584 * 2 / 2 / 8e6, 1e-9);
}

TEST(Bridge, SharesTheCardsWithWhatElseLeavesTheNode) {
  Plan plan = text_plan(gpt_model({}), real_links(4, 8, 2), {.tp = 8, .pp = 2, .dp = 2}, 512);
  ModulePlan& llm = plan.modules.front();
  ModuleCosts costs;
  costs.pipeline_link = next_stage_link(plan);
  costs.gradient_link = {.num_ranks = 2, .num_nodes = 2};
  const std::vector<BridgeTime> bridges = {{.busy_ms = 4, .latency_ms = 0.5, .leaves_node = true},
                                           {.busy_ms = 1, .latency_ms = 0.5, .leaves_node = true},
                                           {.busy_ms = 9, .latency_ms = 0.25, .leaves_node = false}};
  const auto shared_ms = [&] {
    std::vector<double> ms;
    for (size_t i = 0; i < bridges.size(); ++i) ms.push_back(shared_bridge_ms(plan, costs, bridges, i));
    return ms;
  };
  // The shorter one holds the longer up by its own length, and is half as fast itself.
  EXPECT_EQ(shared_ms(), (std::vector<double>{4 + 0.5 + 1, 1 + 0.5 + 1, 9.25}));
  // Two cards of 25 GB/s for eight senders: 2 ms for each.
  costs.boundary_bytes = 2 * 25e6 / 4;
  EXPECT_NEAR(shared_ms()[0], 4 + 0.5 + 1 + 2, 1e-12);
  EXPECT_NEAR(shared_ms()[1], 1 + 0.5 + 1 + 1, 1e-12);
  llm.zero = 1;
  EXPECT_NEAR(shared_ms()[0], 7.5, 1e-12) << "reductions come when the step ends";
  llm.zero = 2;
  EXPECT_NEAR(shared_ms()[0], 7.5 + 4, 1e-12);
  EXPECT_EQ(shared_ms()[2], 9.25);
  costs.gradient_link.num_nodes = 1;
  EXPECT_NEAR(shared_ms()[0], 7.5, 1e-12);
}

TEST(Bridge, TakesFromATransferWhatTheTransferTakesFromIt) {
  Plan plan = text_plan(gpt_model({}), real_links(4, 8, 2), {.tp = 8, .pp = 2, .dp = 2}, 512);
  ModuleCosts costs;
  costs.pipeline_link = next_stage_link(plan);
  costs.gradient_link = {.num_ranks = 2, .num_nodes = 2};
  const std::vector<BridgeTime> bridges = {
      {.busy_ms = 4, .leaves_node = true}, {.busy_ms = 1, .leaves_node = true}, {.busy_ms = 9, .leaves_node = false}};
  EXPECT_EQ(bridges_hold_up_ms(plan, costs, bridges), 0) << "nothing is passed on";
  const std::vector<double> alone_ms = {shared_bridge_ms(plan, costs, bridges, 0),
                                        shared_bridge_ms(plan, costs, bridges, 1)};
  costs.boundary_bytes = 2 * 25e6 / 4;  // 2 ms for each of eight senders
  // While two are on their way each is half as fast: 2 ms with the longer bridge, 1 ms with the shorter.
  EXPECT_NEAR(bridges_hold_up_ms(plan, costs, bridges), 2 + 1, 1e-12);
  double taken_ms = 0;
  for (size_t i = 0; i < 2; ++i) taken_ms += shared_bridge_ms(plan, costs, bridges, i) - alone_ms[i];
  EXPECT_NEAR(bridges_hold_up_ms(plan, costs, bridges), taken_ms, 1e-12);
  costs.pipeline_link.num_nodes = 1;
  EXPECT_EQ(bridges_hold_up_ms(plan, costs, bridges), 0) << "transfers stay in the node";
}

TEST(Bridge, HoldsUpTransfersOfTheStageAtWhichTheLlmBegins) {
  Plan plan = *read_plan_file(source_tree().string() + "/scenarios/plans/qwen2.5-vl-7b_disjoint_stream.json");
  ASSERT_EQ(plan.llm().pp, 2);
  const auto busy_ms = [&](double images) {
    Plan priced = plan;
    priced.workload.images = {Distribution::constant(images), Distribution::constant(1024)};
    CostModel model = *CostModel::create(priced);
    PlanCosts costs;
    model.price(priced, costs);
    std::vector<double> busy;
    for (const StageCost& stage : costs.stages) busy.push_back(stage.transfer_busy_ms);
    return busy;
  };
  plan.cluster.between_nodes = {.bandwidth_gb_per_s = 8, .latency_us = 0};
  plan.cluster.efficiency.between_nodes = 1;
  plan.workload.tokens = Distribution::constant(4096);
  plan.workload.tokens_include_media = true;
  EXPECT_EQ(busy_ms(2), busy_ms(0)) << "stages are neighbours in a node";
  // One device a node: everything leaves it.
  plan.cluster.nodes = 16;
  plan.cluster.devices_per_node = plan.cluster.cards_per_node = 1;
  const std::vector<double> without = busy_ms(0), with = busy_ms(2);
  EXPECT_NEAR(without[0], 4096 * 3584 * 2 / 2 / 8e6, 1e-9);
  // The bridge of the first test, which is shorter than the transfer.
  EXPECT_NEAR(with[0] - without[0], 2 * 256 * 3584 * 2 / 2 / 8e6, 1e-9);
  EXPECT_EQ(with[1], 0) << "the last stage passes nothing on";
}

TEST(Bridge, WithoutRowsNothingIsSent) {
  Plan plan = *read_plan_file(source_tree().string() + "/scenarios/plans/qwen2.5-vl-7b_disjoint_stream.json");
  plan.workload.images = {Distribution::constant(0), Distribution::constant(1024)};
  CostModel model = *CostModel::create(plan);
  PlanCosts costs;
  model.price(plan, costs);
  EXPECT_EQ(costs.encoders.front().bridge_ms, 0);
}

}  // namespace
}  // namespace weft
