#include "weft/search/place_pipeline.h"

#include <gtest/gtest.h>

#include "tests/support/source_tree.h"
#include "weft/search/workbench.h"
#include "weft/spec/scenario.h"

namespace weft::place_pipeline_test {
namespace {

const Scenarios kScenarios(source_tree().string() + "/scenarios");

Plan small_problem(const std::string& model_name, const std::string& workload_name, double gib) {
  Model model = *kScenarios.model(model_name);
  for (Module& module : model.modules) module.layers.resize(8);
  Cluster cluster = *kScenarios.cluster("dgx_h100");
  cluster.device.memory_gib = gib;
  Workload workload = *kScenarios.workload(workload_name);
  workload.global_batch_samples = 32;
  return plan_without_settings(model, cluster, workload);
}

/// A candidate's pipeline, nothing beside it.
class Pipeline {
 public:
  Pipeline(Plan problem, const Candidate& c)
      : c_(c), problem_(std::move(problem)), bench_(space_, problem_, *PlanSimulator::create(problem_)) {
    bench_.fill(c_);
  }

  PlanStages stages() {
    return {bench_.plan(),    bench_.pipeline_costs(),  shape(), prices_, nothing_beside(c_.pp),
            space_.recompute, /*has_memory_limit=*/true};
  }
  SolverShape& shape() { return bench_.shape_of(c_).solver(); }

 private:
  PlanSpace space_;
  Candidate c_;
  Plan problem_;
  Workbench bench_;
  StagePrices prices_;
};

TEST(PlacePipeline, WhereItLooksFirstDoesNotChangeWhatItFinds) {
  Candidate c{{.pp = 4, .dp = 2}};
  c.mbs = 2;
  int num_placed = 0;
  for (const auto& [model, workload] : {std::pair("llama3-8b", "text_4k"), {"qwen2.5-vl-7b", "vl_sft"}}) {
    // From what hardly fits, with much recomputed, to plenty.
    for (const double gib : {34.0, 38.0, 44.0, 52.0, 80.0}) {
      for (const ScheduleName schedule : {ScheduleName::k1f1b, ScheduleName::kZbH1}) {
        c.schedule = schedule;
        Pipeline pipeline(small_problem(model, workload, gib), c);
        PlanStages stages = pipeline.stages();
        const Deadline deadline(1000.0);
        const PlacedPipeline exact = place_pipeline(stages, pipeline.shape(), {.deadline = deadline});
        if (exact.stages.empty()) continue;
        ++num_placed;
        // Far below, a little below, at and above what is best.
        for (const double share : {0.3, 0.85, 0.97, 1.0, 1.4}) {
          const PlacedPipeline near = place_pipeline(
              stages, pipeline.shape(),
              {.below_ms = 2 * exact.makespan_ms, .near_ms = share * exact.makespan_ms, .deadline = deadline});
          EXPECT_NEAR(near.makespan_ms, exact.makespan_ms, kPrecision * exact.makespan_ms) << model << ", " << share;
          EXPECT_TRUE(near.is_exhausted);
        }
        // Nothing is below.
        const PlacedPipeline none = place_pipeline(
            stages, pipeline.shape(),
            {.below_ms = 0.9 * exact.makespan_ms, .near_ms = 0.8 * exact.makespan_ms, .deadline = deadline});
        EXPECT_TRUE(none.stages.empty());
      }
    }
  }
  EXPECT_GE(num_placed, 8);
}

TEST(PlanStages, OfSeveralModulesAStageOffersFewNumbersOfRecomputedLayersWhereBlocksMoveFreely) {
  Candidate c{{.pp = 2, .vpp = 2, .dp = 4}};
  c.mbs = 4;
  c.schedule = ScheduleName::kInterleaved1f1b;
  Plan problem = small_problem("qwen2.5-omni-7b", "omni_short", 80);
  for (Module& module : problem.model.modules) {
    const size_t kind = module.layers.front();
    module.layers.assign(24, kind);
  }
  Pipeline pipeline(std::move(problem), c);
  PlanStages all = pipeline.stages(), few = pipeline.stages();
  few.offer_few();
  std::vector<StageOption> of_all, of_few;
  // Most of vision's layers and all of audio's.
  ASSERT_FALSE(all.list(0, 0, 46, of_all));
  ASSERT_FALSE(few.list(0, 0, 46, of_few));
  EXPECT_GT(of_all.size(), 64u);
  EXPECT_LE(of_few.size(), 64u);
  ASSERT_GE(of_few.size(), 2u);
  // The quickest is among them, and what holds least.
  const auto least_held = [](const std::vector<StageOption>& options) {
    double least = kInfinity;
    for (const StageOption& option : options) least = std::min(least, option.figures[kActivationGib]);
    return least;
  };
  EXPECT_EQ(of_few.front().figures, of_all.front().figures);
  EXPECT_EQ(least_held(of_few), least_held(of_all));
  // Of one module all.
  of_all.clear();
  of_few.clear();
  ASSERT_FALSE(all.list(3, 60, 12, of_all));
  ASSERT_FALSE(few.list(3, 60, 12, of_few));
  EXPECT_EQ(of_few.size(), of_all.size());
}

/// Twelve blocks on three stages; a run has one way, and takes as long as its blocks.
class EvenSource : public StageSource {
 public:
  int32_t num_stages() const override { return 3; }
  int32_t num_blocks() const override { return 12; }
  std::optional<Error> list(int32_t /*stage*/, int32_t first, int32_t count,
                            std::vector<StageOption>& options) override {
    StageOption option{.first = first, .count = count};
    option.figures[kForwardWork] = count;
    options.push_back(option);
    return std::nullopt;
  }
};

TEST(StageOptions, AroundAPlacementAreThoseWhoseStagesStartNearIt) {
  EvenSource source;
  const StageOptions all = *StageOptions::make(source, {});
  const std::vector<int32_t> around = {0, 3, 9};
  const StageOptions some = *StageOptions::make(source, {.around = around, .reach = 2});
  const auto is_near = [&](int32_t stage, int32_t first) {
    if (stage == 3) return first == 12;
    return std::abs(first - around[static_cast<size_t>(stage)]) <= (stage == 0 ? 0 : 2);
  };
  size_t num_near = 0;
  for (int32_t stage = 0; stage < 3; ++stage) {
    for (int32_t first = 0; first < 12; ++first) {
      std::vector<int32_t> near, listed;
      for (size_t i = all.begin(stage, first); i < all.begin(stage, first + 1); ++i) {
        if (is_near(stage, first) && is_near(stage + 1, all[i].end())) near.push_back(all[i].count);
      }
      for (size_t i = some.begin(stage, first); i < some.begin(stage, first + 1); ++i) listed.push_back(some[i].count);
      EXPECT_EQ(listed, near) << stage << ", " << first;
      num_near += near.size();
    }
  }
  EXPECT_GT(num_near, 20u);
  EXPECT_EQ(some.size(), num_near);
}

}  // namespace
}  // namespace weft::place_pipeline_test
