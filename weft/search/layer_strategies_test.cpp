#include "weft/search/layer_strategies.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "tests/support/cost/fake_profile.h"
#include "tests/support/source_tree.h"
#include "weft/cost/apply_profile.h"
#include "weft/cost/block_time.h"
#include "weft/meaning/check.h"
#include "weft/meaning/macro_batch.h"
#include "weft/plan/plan_json.h"
#include "weft/program/program_blocks.h"
#include "weft/program/program_strategy.h"
#include "weft/search/program_strategies.h"
#include "weft/simulate/plan_simulator.h"
#include "weft/simulate/wanted_shapes.h"
#include "weft/spec/scenario.h"

namespace weft::layer_strategies_test {
namespace {

const Scenarios kScenarios(source_tree().string() + "/scenarios");

/// A vision encoder beside an llm, or in its pipeline, each with a degree of its own.
PlanProblem encoder_problem(const char* model, int64_t llm_tp, int64_t vision_tp, bool is_inline) {
  PlanProblem problem{.model = *kScenarios.model(model), .cluster = {}, .workload = {}, .space = {}};
  problem.cluster = *kScenarios.cluster("dgx_a100_80g", 1);
  problem.workload = *kScenarios.workload("tiny_vl");
  problem.workload.global_batch_samples = 16;
  problem.space.tp = {.values = {llm_tp}};
  problem.space.cp = {.values = {1}};
  problem.space.pp = {.values = {1}};
  problem.space.mbs = {.values = {1, 4, 8}};
  EncoderSpace& vision = problem.space.encoders[ModuleKind::kVision];
  vision.allows_inline = is_inline;
  vision.allows_colocated = !is_inline;
  vision.allows_disjoint = vision.allows_partial = vision.allows_fill = false;
  vision.tp = {.values = {vision_tp}};
  vision.sequence_parallel = true;
  vision.recompute_from_inputs = false;
  return problem;
}

PlanSearchResult searched(const PlanProblem& problem, const PlanSearchOptions& options = {}) {
  auto result = search_plans(problem.model, problem.cluster, problem.workload, problem.space, options);
  WEFT_CHECK(result.ok(), "{}", result.error().message());
  return *std::move(result);
}

/// The plan stands alone: read back, it is legal and takes as long as was said.
void expect_stands_alone(const FoundPlan& found, const Profile* profile = nullptr) {
  const Result<Plan> read = read_plan({.source = "plan.json", .root = plan_to_json(found.plan)});
  ASSERT_TRUE(read.ok()) << read.error().message();
  EXPECT_TRUE(check_plan(*read).empty());
  const auto report = simulate_plan(*read, {.profile = profile});
  ASSERT_TRUE(report.ok()) << report.error().message();
  EXPECT_NEAR(report->step_time_ms, found.step_time_ms, 1e-9 * found.step_time_ms);
}

TEST(LayerStrategies, AreTriedForEncodersWithDegreesOfTheirOwn) {
  int64_t num_of_vision = 0;
  for (const auto& [llm_tp, vision_tp, is_inline] :
       {std::tuple{8, 8, false}, {4, 4, false}, {8, 4, false}, {2, 2, false}, {8, 8, true}, {4, 4, true}}) {
    SCOPED_TRACE(fmt::format("llm {} vision {} {}", llm_tp, vision_tp, is_inline ? "inline" : "colocated"));
    const PlanProblem problem = encoder_problem("internvl3-8b", llm_tp, vision_tp, is_inline);
    PlanSearchResult result = searched(problem);
    ASSERT_FALSE(result.best.empty());
    const double usual_ms = result.best.front().step_time_ms;
    const auto gain = improve_by_strategies(problem, {}, result);
    ASSERT_TRUE(gain.ok()) << gain.error().message();
    EXPECT_LE(result.best.front().step_time_ms, usual_ms);
    const PlanStrategy strategy = strategy_of(result.best.front().plan);
    EXPECT_EQ(gain->has_value(), !strategy.empty());
    expect_stands_alone(result.best.front());
    if (!*gain) continue;
    EXPECT_EQ((*gain)->strategy, strategy);
    EXPECT_EQ((*gain)->usual_ms, usual_ms);
    ASSERT_EQ((*gain)->modules.size(), strategy.size());
    for (size_t i = 0; i < strategy.size(); ++i) {
      EXPECT_EQ((*gain)->modules[i].module, strategy[i].module);
      EXPECT_LT((*gain)->modules[i].ms, (*gain)->modules[i].usual_ms);
      const ModulePlan& module = *result.best.front().plan.find(strategy[i].module);
      EXPECT_EQ(strategy[i].strategy.mesh, (std::vector<Axis>{{"tp", module.tp}}));
      num_of_vision += strategy[i].module == ModuleKind::kVision ? 1 : 0;
    }
  }
  EXPECT_GT(num_of_vision, 0);
}

TEST(LayerStrategies, AreLeftOutWhereTheSpaceSaysSo) {
  PlanProblem problem = encoder_problem("qwen2-vl-2b", 4, 4, false);
  problem.space.allows_strategies = false;
  PlanSearchResult result = searched(problem);
  const auto gain = improve_by_strategies(problem, {}, result);
  ASSERT_TRUE(gain.ok());
  EXPECT_FALSE(gain->has_value());
}

/// Over how many ranks rows are shared out, and how many of these exchange heads.
struct RowRanks {
  int64_t cp = 1;
  int64_t ulysses = 1;
};

/// A plan of the usual model, in which a vision encoder beside the pipeline has tp.
Plan encoder_plan(int64_t tp, bool divides_rows, RowRanks ranks = {}) {
  PlanProblem problem = encoder_problem("tiny-vl", tp, tp, /*is_inline=*/false);
  problem.space.encoders[ModuleKind::kVision].sequence_parallel = divides_rows;
  problem.space.encoders[ModuleKind::kVision].mbs_scale = {.values = {2}};
  problem.cluster = *kScenarios.cluster("dgx_h100", 1);
  problem.space.mbs = {.values = {2}};
  PlanSearchResult result = searched(problem);
  WEFT_CHECK(!result.best.empty(), "nothing fits");
  Plan plan = result.best.front().plan;
  for (ModulePlan& module : plan.modules) {
    if (module.kind != ModuleKind::kVision) continue;
    module.cp = ranks.cp;
    module.cp_ulysses = ranks.ulysses;
    module.dp /= ranks.cp;
  }
  return plan;
}

/// What the vision encoder's layers take by a strategy in a macro batch, as plans price them.
double layers_ms(const Plan& plan, const BlockEntries& entries) {
  const ModulePlan& module = *plan.find(ModuleKind::kVision);
  const Module usual = *plan.model.find(ModuleKind::kVision);
  const Result<Module> made = with_strategy(usual, entries, module.tp);
  WEFT_CHECK(made.ok(), "{}", made.error().message());
  Segments segments = average_sample(plan.model, plan.workload)->of(ModuleKind::kVision);
  for (Segment& segment : segments) segment.count *= static_cast<double>(samples_at_once(plan, module));
  const BlockSetting setting = setting_of(plan, module, place_module(plan.cluster, module));
  const AnalyticTimes times(plan.cluster);
  double ms = 0;
  for (const size_t kind : made->layers) {
    const BlockTime time = times.time_of(*made, made->distinct_layers[kind], setting, segments);
    ms += time.forward.total_ms() + time.backward_input.total_ms() + time.backward_weight.total_ms();
  }
  return ms;
}

/// All ways in which some operators of a block do what their rules allow, the others as they are.
template <typename Visit>
void each_strategy(const BlockProgram& block, size_t first, size_t last, BlockEntries entries, const std::string& kind,
                   bool has_whole_attention, Visit visit) {
  if (first == last) return visit(entries);
  const Operator& op = block.program.operators[first];
  for (const Choice choice : choices_of(op.rule)) {
    if (has_whole_attention && op.kind == OperatorKind::kAttention && is_cut_inside(op.rule, choice)) continue;
    BlockEntries more = entries;
    std::erase_if(more[kind], [&](const StrategyEntry& entry) { return entry.pattern == op.name; });
    more[kind].push_back({.pattern = op.name, .words = {{"tp", text_of(op.rule, choice)}}});
    each_strategy(block, first + 1, last, std::move(more), kind, has_whole_attention, visit);
  }
}

/// Brute force: whatever any three neighbouring operators did instead, no layer of the encoder would be faster.
TEST(LayerStrategies, AreTheFastestOfAnEncodersLayer) {
  for (const auto& [divides_rows, ranks] : {std::pair{false, RowRanks{}},
                                            {true, RowRanks{}},
                                            {false, RowRanks{.cp = 2}},
                                            {true, RowRanks{.cp = 2, .ulysses = 2}}}) {
    SCOPED_TRACE(
        fmt::format("{} rows, cp {}, ulysses {}", divides_rows ? "divided" : "whole", ranks.cp, ranks.ulysses));
    const Plan plan = encoder_plan(2, divides_rows, ranks);
    const Module& vision = *plan.model.find(ModuleKind::kVision);
    ASSERT_EQ(vision.distinct_layers.size(), 1u);
    const std::string kind = vision.distinct_layers.front().name;
    const auto offered = faster_layers(plan, nullptr, ModuleKind::kVision);
    ASSERT_TRUE(offered.ok()) << offered.error().message();
    const double usual_ms = layers_ms(plan, {});
    BlockEntries best = {{kind, {}}};
    double best_ms = std::min(usual_ms, layers_ms(plan, best));
    if (!offered->empty()) {
      best = offered->front().strategy.front().strategy.blocks;
      best_ms = layers_ms(plan, best);
      EXPECT_NEAR(offered->front().gains.front().usual_ms, usual_ms, 1e-9 * usual_ms);
      EXPECT_NEAR(offered->front().gains.front().ms, best_ms, 1e-9 * usual_ms);
    }
    const Result<Module> made = with_strategy(vision, {{kind, {}}}, 2);
    const BlockProgram& block = *made->distinct_layers.front().program;
    constexpr size_t kAtOnce = 3;
    int64_t num_tried = 0;
    double least_ms = best_ms;
    for (size_t first = 0; first + kAtOnce <= block.num_own; ++first) {
      each_strategy(block, first, first + kAtOnce, best, kind, ranks.cp > 1, [&](const BlockEntries& entries) {
        ++num_tried;
        least_ms = std::min(least_ms, layers_ms(plan, entries));
      });
    }
    EXPECT_GT(num_tried, 100);
    EXPECT_GE(least_ms, best_ms * (1 - 1e-9)) << "of " << usual_ms << " by the usual code";
  }
}

TEST(LayerStrategies, AreTriedWithContextParallelism) {
  int64_t num_found = 0;
  for (const int64_t tp : {2, 4}) {
    SCOPED_TRACE(fmt::format("tp {}", tp));
    PlanProblem problem = encoder_problem("internvl3-8b", 4, tp, /*is_inline=*/false);
    problem.space.cp = {.values = {2}};
    problem.space.encoders[ModuleKind::kVision].cp = {.values = {2}};
    PlanSearchResult result = searched(problem);
    ASSERT_FALSE(result.best.empty());
    const double usual_ms = result.best.front().step_time_ms;
    const auto gain = improve_by_strategies(problem, {}, result);
    ASSERT_TRUE(gain.ok()) << gain.error().message();
    EXPECT_LE(result.best.front().step_time_ms, usual_ms);
    for (const ModulePlan& module : result.best.front().plan.modules) EXPECT_EQ(module.cp, 2);
    num_found += *gain ? 1 : 0;
    expect_stands_alone(result.best.front());
  }
  EXPECT_GT(num_found, 0);
}

TEST(LayerStrategies, WithAProfileArePricedLikeTheLayersThatTheyReplace) {
  const PlanProblem problem = encoder_problem("qwen2-vl-2b", 4, 4, false);
  PlanSearchResult first = searched(problem);
  const Plan plan = first.best.front().plan;
  const Profile profile = FakeDevice{.flops_per_ms = 1e11}.profile_of(plan, *wanted_shapes(plan));
  const PlanSearchOptions options{.profile = &profile};
  PlanSearchResult result = searched(problem, options);
  ASSERT_FALSE(result.best.empty());
  const double usual_ms = result.best.front().step_time_ms;
  const auto gain = improve_by_strategies(problem, options, result);
  ASSERT_TRUE(gain.ok()) << gain.error().message();
  EXPECT_LE(result.best.front().step_time_ms, usual_ms);
  expect_stands_alone(result.best.front(), &profile);
}

TEST(LayerStrategies, OfAPlanAreMeasuredWithTheLayersThatTheyReplace) {
  const PlanProblem problem = encoder_problem("qwen2-vl-2b", 4, 4, false);
  PlanSearchResult result = searched(problem);
  Json json = plan_to_json(result.best.front().plan);
  json["modules"]["vision"]["strategy"]["blocks"]["layer"] = Json::object();
  const Result<Plan> plan = read_plan({.source = "plan.json", .root = json});
  ASSERT_TRUE(plan.ok()) << plan.error().message();
  const auto shapes = wanted_shapes(*plan);
  ASSERT_TRUE(shapes.ok());
  int64_t num_with = 0;
  for (const BlockShape& shape : *shapes) {
    if (shape.strategy.empty()) continue;
    ++num_with;
    EXPECT_EQ(shape.strategy, "usual");
    BlockShape usual = shape;
    usual.strategy.clear();
    EXPECT_NE(std::find(shapes->begin(), shapes->end(), usual), shapes->end());
  }
  EXPECT_GT(num_with, 0);
}

}  // namespace
}  // namespace weft::layer_strategies_test
