#include "weft/validate/validation.h"

#include <cmath>
#include <set>

#include <gtest/gtest.h>

#include "tests/support/source_tree.h"
#include "weft/validate/least_squares.h"
#include "weft/validate/published.h"

namespace weft::validation_test {
namespace {

const std::filesystem::path kScenarios = source_tree() / "scenarios";

Cluster a100() {
  return *read_cluster_file(kScenarios / "clusters" / "dgx_a100_80g.yaml");
}

Published published() {
  return *read_published(kScenarios / "validation" / "reducing_activation_recomputation.yaml");
}

TEST(Validation, ShippedEfficiencyPredictsThePublishedStepTimes) {
  const std::vector<PreparedRun> runs = *prepare(published().runs, a100());
  ASSERT_EQ(runs.size(), 8u);
  const Accuracy accuracy = accuracy_of(predict(runs, a100().efficiency));
  EXPECT_LE(accuracy.mean_error_percent, 3);
  EXPECT_LE(accuracy.max_error_percent, 7);
}

TEST(Validation, EveryPublishedModelRanInTwoWays) {
  const std::vector<TrainingRun> runs = published().runs;
  ASSERT_EQ(runs.size() % 2, 0U);
  for (size_t i = 0; i < runs.size(); i += 2) {
    EXPECT_EQ(runs[i].recompute, Recomputation::kFull) << runs[i].name;
    EXPECT_FALSE(runs[i].sequence_parallel) << runs[i].name;
    EXPECT_EQ(runs[i + 1].recompute, Recomputation::kSelective) << runs[i + 1].name;
    EXPECT_TRUE(runs[i + 1].sequence_parallel) << runs[i + 1].name;
    EXPECT_LT(runs[i + 1].measured_ms, runs[i].measured_ms) << "recomputing all takes longer";
  }
}

TEST(Validation, EachPublishedModelIsPredictedByAFitToTheOthers) {
  const std::vector<PreparedRun> runs = *prepare(published().runs, a100());
  size_t told = 0;
  const std::vector<PredictedRun> left_out = cross_validate(
      runs, [](size_t run) { return run / 2; }, 4, [&](size_t done) { told = done; });
  EXPECT_EQ(told, 4u);
  EXPECT_LE(accuracy_of(left_out).mean_error_percent, 5);
}

TEST(Validation, FoldsKeepModelsWhole) {
  const std::vector<PreparedRun> runs = *prepare(published().runs, a100());
  for (const size_t num_parts : {2U, 3U, 4U}) {
    const Folds folds = folds_of(runs, num_parts);
    ASSERT_EQ(folds.part_of_run.size(), runs.size());
    EXPECT_EQ(folds.num_models, 4U);
    EXPECT_TRUE(folds.has_whole_models);
    std::set<size_t> parts(folds.part_of_run.begin(), folds.part_of_run.end());
    EXPECT_EQ(parts.size(), num_parts) << "every part has runs";
    for (size_t i = 0; i < runs.size(); i += 2) EXPECT_EQ(folds.part_of_run[i], folds.part_of_run[i + 1]) << i;
  }
  // More parts than models: by runs, and it is said.
  const Folds many = folds_of(runs, 5);
  EXPECT_FALSE(many.has_whole_models);
  EXPECT_EQ(many.part_of_run, (std::vector<size_t>{0, 1, 2, 3, 4, 0, 1, 2}));
}

TEST(Validation, SequencesOfOtherLengthsAreOfTheSameModel) {
  std::vector<PreparedRun> runs = *prepare(published().runs, a100());
  runs.resize(4);
  runs[1].run.sequence_length *= 2;
  EXPECT_EQ(folds_of(runs, 2).num_models, 2U);
  runs[1].run.vocabulary += 128;
  EXPECT_EQ(folds_of(runs, 2).num_models, 3U);
}

TEST(Validation, MemoryPartsEqualThePublishedOnes) {
  for (const PublishedMemory& memory : published().memory) {
    const MatchingMemory ours = *matching_memory(memory, a100());
    EXPECT_NEAR(ours.layer_gib, memory.layer_gib, 0.006) << memory.name;
    EXPECT_NEAR(ours.layer_gib_selective_sequence_parallel, memory.layer_gib_selective_sequence_parallel, 0.006)
        << memory.name;
    EXPECT_NEAR(ours.state_gib, memory.state_gib, 0.006) << memory.name;
    EXPECT_GT(ours.full_prediction_gib, ours.layer_gib + ours.state_gib) << memory.name;
  }
}

TEST(Validation, ErrorsArePercentOfTheMeasuredTime) {
  const std::vector<PredictedRun> runs = {{"a", 100, 110}, {"b", 100, 96}};
  EXPECT_NEAR(runs[0].error_percent(), 10, 1e-9);
  EXPECT_NEAR(runs[1].error_percent(), -4, 1e-9);
  EXPECT_NEAR(accuracy_of(runs).mean_error_percent, 7, 1e-9);
  EXPECT_NEAR(accuracy_of(runs).max_error_percent, 10, 1e-9);
}

/// Runs of many shapes, as somebody with this efficiency would have measured them.
std::vector<PreparedRun> synthetic_runs(const Efficiency& efficiency, const Cluster& cluster) {
  std::vector<TrainingRun> runs;
  for (const int64_t hidden : {1024, 4096}) {
    for (const int64_t tp : {1, 2, 8}) {
      for (const int64_t pp : {1, 2, 4}) {
        for (const int64_t micro_batch : {1, 4}) {
          const int64_t devices = std::max<int64_t>(8, tp * pp);
          runs.push_back({.name = "run",
                          .source = "table",
                          .hidden_size = hidden,
                          .num_heads = 16,
                          .num_layers = 8,
                          .sequence_length = 1024,
                          .num_devices = devices,
                          .global_batch = 32,
                          .micro_batch = micro_batch,
                          .tp = tp,
                          .dp = devices / (tp * pp),
                          .pp = pp,
                          .measured_ms = 1});
        }
      }
    }
  }
  std::vector<PreparedRun> prepared;
  for (const TrainingRun& run : runs) {
    if (run.global_batch % (run.dp * run.micro_batch) != 0) continue;
    prepared.push_back(prepare({run}, cluster)->front());
    prepared.back().run.measured_ms = predict_ms(prepared.back(), efficiency);
  }
  return prepared;
}

TEST(Calibrate, FindsWhatATableWasMadeWith) {
  const Cluster cluster = a100();
  Efficiency truth = calibration_start();
  truth.matrix = 0.62;
  truth.memory = 0.65;
  truth.within_node = 0.5;
  truth.kernel_us = 15;
  const std::vector<PreparedRun> runs = synthetic_runs(truth, cluster);
  ASSERT_GE(runs.size(), 30u);
  EXPECT_GT(accuracy_of(predict(runs, Efficiency{})).mean_error_percent, 10) << "the defaults are far off";
  const Efficiency found = calibrate(weighted({&runs}));
  EXPECT_LT(accuracy_of(predict(runs, found)).mean_error_percent, 1.5);
  EXPECT_LT(accuracy_of(predict(runs, found)).max_error_percent, 5);
  EXPECT_EQ(found.fused_attention, Efficiency{}.fused_attention) << "what is not fitted stays";
  const Efficiency again = calibrate(weighted({&runs}));
  EXPECT_EQ(again.matrix, found.matrix);
}

TEST(Calibrate, ParametersWithoutInfluenceStayAtTheirDefaults) {
  const Cluster cluster = a100();
  std::vector<PreparedRun> runs;
  for (const PreparedRun& run : synthetic_runs({.matrix = 0.6}, cluster)) {
    if (run.run.tp == 1 && run.run.pp == 1) runs.push_back(run);
  }
  const Efficiency found = calibrate(weighted({&runs}));
  EXPECT_NEAR(found.between_nodes, Efficiency{}.between_nodes, 1e-9) << "one node has nothing between nodes";
  EXPECT_NEAR(found.action_us, Efficiency{}.action_us, 1e-6) << "no pipeline";
  EXPECT_LT(fitted_parameters().size(), 15u);
}

TEST(Calibrate, AWildOutlierHardlyMovesTheFit) {
  const Cluster cluster = a100();
  Efficiency truth = calibration_start();
  truth.matrix = 0.6;
  std::vector<PreparedRun> runs = synthetic_runs(truth, cluster);
  runs[3].run.measured_ms *= 4;
  const Efficiency found = calibrate(weighted({&runs}));
  runs.erase(runs.begin() + 3);
  EXPECT_LT(accuracy_of(predict(runs, found)).mean_error_percent, 3);
}

TEST(Calibrate, ShortTablesCountAsMuchAsLongOnes) {
  const std::vector<PreparedRun> one(2), other(8);
  const std::vector<WeightedRun> runs = weighted({&one, &other});
  ASSERT_EQ(runs.size(), 10u);
  double first = 0, second = 0;
  for (size_t i = 0; i < 10; ++i) (i < 2 ? first : second) += runs[i].weight * runs[i].weight;
  EXPECT_NEAR(first, second, 1e-9);
}

/// A line through points, pulled only slightly to where it starts.
LeastSquares line_through(const std::vector<std::pair<double, double>>& points, double deviation) {
  LeastSquares problem{.start = {0, 0},
                       .low = {-100, -100},
                       .high = {100, 100},
                       .deviation = {deviation, deviation},
                       .num_residuals = points.size(),
                       .residuals = {}};
  problem.residuals = [points](const std::vector<double>& at, std::vector<double>& out) {
    for (size_t i = 0; i < points.size(); ++i) out[i] = at[0] + at[1] * points[i].first - points[i].second;
  };
  return problem;
}

TEST(LeastSquares, FindsALineThatFits) {
  const std::vector<double> at = solve(line_through({{0, 3}, {1, 5}, {2, 7}, {5, 13}}, 1e4));
  EXPECT_NEAR(at[0], 3, 1e-3);
  EXPECT_NEAR(at[1], 2, 1e-3);
}

TEST(LeastSquares, WithNothingToSayParametersStayAtTheirStart) {
  LeastSquares problem = line_through({}, 1);
  problem.start = {4, -2};
  EXPECT_EQ(solve(problem), (std::vector<double>{4, -2}));
}

TEST(LeastSquares, ThePullAndOneResidualMeetWhereTheirSlopesAreEqual) {
  LeastSquares problem = line_through({{0, 0.2}}, 1);
  const double a = solve(problem)[0];
  // Least of 2·(√(1 + r²) − 1) + a², r = a − 0.2: r/√(1 + r²) + a = 0.
  const double r = a - 0.2;
  EXPECT_NEAR(r / std::sqrt(1 + r * r) + a, 0, 1e-4);
}

TEST(LeastSquares, BoundsHold) {
  LeastSquares problem = line_through({{0, 30}, {1, 50}}, 1e4);
  problem.high = {20, 100};
  const std::vector<double> at = solve(problem);
  EXPECT_NEAR(at[0], 20, 1e-9);
  EXPECT_GT(at[1], 20);
}

TEST(LeastSquares, OneOutlierDoesNotDecide) {
  std::vector<std::pair<double, double>> points;
  for (int i = 0; i < 20; ++i) points.emplace_back(i, 1 + 2.0 * i);
  points[10].second = 1000;
  const std::vector<double> at = solve(line_through(points, 1e4));
  EXPECT_NEAR(at[0], 1, 0.5);
  EXPECT_NEAR(at[1], 2, 0.1);
}

}  // namespace
}  // namespace weft::validation_test
