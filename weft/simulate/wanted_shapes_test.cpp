#include "weft/simulate/wanted_shapes.h"

#include <cmath>
#include <limits>
#include <set>

#include <gtest/gtest.h>

#include "tests/support/cost/example_plan.h"
#include "tests/support/source_tree.h"
#include "weft/plan/plan_json.h"
#include "weft/simulate/drawn_samples.h"
#include "weft/simulate/plan_simulator.h"

namespace weft::wanted_shapes_test {
namespace {

Plan shipped(const std::string& name) {
  return *read_plan_file(source_tree() / "scenarios" / "plans" / (name + ".json"));
}

std::vector<BlockShape> wanted(const Plan& plan) {
  const Result<std::vector<BlockShape>> shapes = wanted_shapes(plan);
  EXPECT_TRUE(shapes.ok()) << shapes.error().message();
  return *shapes;
}

/// Counts how far what is asked lies from the nearest wanted shape.
class NearnessTimes final : public BlockTimes {
 public:
  NearnessTimes(const Cluster& cluster, const std::vector<BlockShape>& shapes, std::vector<double>& factors)
      : formula_(cluster), shapes_(shapes), factors_(factors) {}

  BlockTime time_of(const Module& module, const Block& block, const BlockSetting& setting,
                    const Segments& segments) const override {
    const double tokens = num_tokens(segments);
    if (tokens > 0) {
      double nearest = std::numeric_limits<double>::infinity();
      for (const BlockShape& s : shapes_) {
        if (s.module != module.kind || s.block != block.name || s.tp != setting.tp) continue;
        nearest = std::min(nearest, std::abs(std::log(tokens / s.tokens)));
      }
      factors_.push_back(std::exp(nearest));
    }
    return formula_.time_of(module, block, setting, segments);
  }

 private:
  AnalyticTimes formula_;
  const std::vector<BlockShape>& shapes_;
  std::vector<double>& factors_;
};

TEST(WantedShapes, AreFewAndNearAllThatPricingAsks) {
  for (const char* name : {"qwen2-vl-7b_inline", "qwen2-vl-7b_colocated_before"}) {
    SCOPED_TRACE(name);
    const Plan plan = shipped(name);
    const std::vector<BlockShape> shapes = wanted(plan);
    EXPECT_GE(shapes.size(), 6u);
    EXPECT_LE(shapes.size(), 40u);
    std::vector<double> factors;
    PlanSimulator simulator =
        *PlanSimulator::create(plan, std::make_unique<NearnessTimes>(plan.cluster, shapes, factors));
    const Schedule schedule = *playable_schedule(plan);
    simulator.price(plan);
    for (const double factor : factors) EXPECT_LE(factor, 1.5) << "the mean batch is what counts most";
    factors.clear();
    DrawnSamples samples(plan);
    const SampleWork work(plan, simulator.costs());
    simulator.run_drawn(plan, schedule, work, samples.batch(40));
    size_t num_far = 0;
    for (const double factor : factors) num_far += factor > 2.1 ? 1 : 0;
    EXPECT_LE(num_far, factors.size() / 50) << "of a batch that was not looked at";
  }
}

TEST(WantedShapes, AreWhatOneRankOfThePlanRuns) {
  const Plan plan = text_plan(gpt_model({.layers = 4}), ideal_cluster(2, 4),
                              {.tp = 2, .cp = 2, .dp = 2, .sequence_parallel = true}, 512, {.microbatches = 2});
  const std::vector<BlockShape> shapes = wanted(plan);
  // Samples of one length: every block once, the layers first.
  ASSERT_EQ(shapes.size(), 3u);
  EXPECT_EQ(shapes[0].block, "layer");
  std::set<std::string> blocks;
  for (const BlockShape& shape : shapes) {
    blocks.insert(shape.block);
    EXPECT_EQ(shape.tp, 2);
    EXPECT_TRUE(shape.sequence_parallel);
    EXPECT_EQ(shape.busy_ranks, 4);
    // Without attention, context parallelism is only fewer rows.
    EXPECT_EQ(shape.cp, shape.block == "layer" ? 2 : 1);
    EXPECT_EQ(shape.tokens, shape.block == "layer" ? 512 : 256);
    EXPECT_EQ(shape.sequence_tokens, shape.tokens);
  }
  EXPECT_EQ(blocks.size(), 3u);
}

TEST(WantedShapes, HaveWholeSequencesOfLengthsThatCanBe) {
  for (const BlockShape& shape : wanted(shipped("qwen2-vl-7b_inline"))) {
    const double count = shape.tokens / shape.sequence_tokens;
    EXPECT_EQ(count, std::round(count));
    EXPECT_EQ(shape.sequence_tokens, std::round(shape.sequence_tokens));
    if (shape.module == ModuleKind::kVision) {
      EXPECT_EQ(std::fmod(shape.sequence_tokens, 4), 0);
    }
  }
}

}  // namespace
}  // namespace weft::wanted_shapes_test
