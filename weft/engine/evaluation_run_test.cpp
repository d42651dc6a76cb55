#include <cstdlib>
#include <fstream>

#include <gtest/gtest.h>

#include "tests/support/source_tree.h"
#include "weft/checkpoint/checkpoint.h"
#include "weft/engine/run_folder.h"
#include "weft/engine/trainer.h"
#include "weft/meaning/parallel_settings.h"
#include "weft/spec/scenario.h"

namespace weft {
namespace {

/// Runs of a tiny model that are evaluated on the way.
class EvaluatedRun : public testing::Test {
 protected:
  EvaluatedRun() {
    std::string name = (std::filesystem::temp_directory_path() / "weft_evaluated_XXXXXX").string();
    WEFT_CHECK(mkdtemp(name.data()) != nullptr, "no temporary folder");
    folder_ = name;
  }
  ~EvaluatedRun() override { std::filesystem::remove_all(folder_); }

  static Plan plan(const ParallelSettings& settings) {
    const Scenarios scenarios(source_tree() / "scenarios");
    auto made = make_plan(*scenarios.model("tiny-vl"), *scenarios.cluster("local_cpu"), *scenarios.workload("tiny_vl"),
                          settings);
    WEFT_CHECK(made.ok(), "{}", made.error().message());
    return *std::move(made);
  }
  static Plan small_plan() {
    return plan({.data_parallel = 2,
                 .micro_batch_num = 2,
                 .precision = {.compute = Precision::kFp32, .master = Precision::kFp32, .reduce = Precision::kFp32}});
  }
  static TrainConfig config(int64_t steps, double rate) {
    TrainConfig config{.source = "code", .steps = steps, .seed = 3, .device = "cpu", .threads_per_rank = 1};
    config.learning_rate = {.kind = LearningRate::Kind::kConstant, .peak = rate, .total_steps = steps};
    config.checkpoints = {.interval_steps = 3, .keep = 1, .keep_best = true};
    config.evaluation.interval_steps = 2;
    config.evaluation_batches = 1;
    return config;
  }
  static Json lines_of(const std::filesystem::path& path) {
    Json lines = Json::array();
    std::ifstream file(path);
    for (std::string line; std::getline(file, line);) {
      Json json = Json::parse(line);
      for (const char* time : {"ms"}) json.erase(time);
      lines.push_back(std::move(json));
    }
    return lines;
  }
  TrainReport train(const TrainConfig& config, const TrainOptions& options) {
    auto report = Trainer(small_plan(), config).train(options);
    WEFT_CHECK(report.ok(), "{}", report.error().message());
    return **std::move(report);
  }

  std::filesystem::path folder_;
};

TEST_F(EvaluatedRun, GoesOnExactlyWhereItStoppedAndKeepsTheBest) {
  const TrainReport whole = train(config(9, 2e-3), {.run_folder = folder_ / "whole"});
  const Json expected = lines_of(RunFolder{folder_ / "whole"}.evaluations());
  ASSERT_EQ(expected.size(), 5u) << "after steps 2, 4, 6, 8 and the last";
  EXPECT_EQ(expected.back()["step"], 9);
  EXPECT_LT(expected.back()["loss"].get<double>(), expected.front()["loss"].get<double>());
  ASSERT_TRUE(whole.best && whole.evaluated);
  EXPECT_EQ(whole.evaluated->loss, expected.back()["loss"].get<double>());

  for (const int64_t stop_after : {2, 3, 5, 8}) {
    const std::filesystem::path run = folder_ / std::to_string(stop_after);
    std::atomic<bool> stop = false;
    const TrainReport first =
        train(config(9, 2e-3), {.run_folder = run, .stop = &stop, .on_step = [&](const StepMetrics& metrics, int64_t) {
                                  if (metrics.step == stop_after) stop = true;
                                }});
    EXPECT_TRUE(first.is_stopped);
    const TrainReport rest = train(config(9, 2e-3), {.resumes = true, .resume_from = run});
    EXPECT_EQ(lines_of(RunFolder{run}.evaluations()), expected) << stop_after;
    EXPECT_EQ(rest.best->step, whole.best->step);
    EXPECT_EQ(rest.best_checkpoint.filename(), whole.best_checkpoint.filename());
  }
}

TEST_F(EvaluatedRun, TheBestCheckpointStaysAndEvaluatesToItsLoss) {
  TrainConfig rising = config(8, 2e-3);
  // Steps so large that the loss rises after the first evaluation.
  rising.learning_rate = {.kind = LearningRate::Kind::kConstant, .peak = 0.5, .total_steps = 8};
  rising.max_gradient_norm = 0;
  const TrainReport report = train(rising, {.run_folder = folder_ / "run"});
  ASSERT_TRUE(report.best && report.evaluated);
  ASSERT_LT(report.best->loss, report.evaluated->loss) << "a run that gets worse is what this is about";
  const RunFolder run{folder_ / "run"};
  const auto kept = list_checkpoints(run.checkpoints());
  ASSERT_TRUE(kept.ok());
  EXPECT_EQ(*kept, (std::vector<int64_t>{report.best->step, 8})) << "the newest one and the best";
  EXPECT_EQ(std::filesystem::canonical(run.best()).filename(), checkpoint_name(report.best->step));
  const auto again = Trainer(small_plan(), rising).evaluate(run.best());
  ASSERT_TRUE(again.ok()) << again.error().message();
  EXPECT_EQ((*again)->loss, report.best->loss);
  EXPECT_EQ((*again)->perplexity(), std::exp(report.best->loss));
}

TEST_F(EvaluatedRun, EndsEarlyWhereNothingIsGained) {
  TrainConfig still = config(40, 0);
  still.evaluation.patience = 2;
  const TrainReport report = train(still, {.run_folder = folder_ / "run"});
  EXPECT_TRUE(report.is_early);
  EXPECT_TRUE(report.is_saved);
  EXPECT_EQ(report.last_step, 6) << "the first evaluation is the best, the two after it are no better";
  const TrainReport again = train(still, {.resumes = true, .resume_from = folder_ / "run"});
  EXPECT_EQ(again.last_step, 6) << "it stays ended";
  // Stopped while its patience runs out, it counts on.
  for (const int64_t stop_after : {3, 4, 5}) {
    const std::filesystem::path run = folder_ / std::to_string(stop_after);
    std::atomic<bool> stop = false;
    const TrainReport first =
        train(still, {.run_folder = run, .stop = &stop, .on_step = [&](const StepMetrics& metrics, int64_t) {
                        if (metrics.step == stop_after) stop = true;
                      }});
    ASSERT_TRUE(first.is_stopped && !first.is_early);
    const TrainReport rest = train(still, {.resumes = true, .resume_from = run});
    EXPECT_EQ(rest.last_step, 6) << stop_after;
    EXPECT_TRUE(rest.is_early) << stop_after;
  }
  still.evaluation.patience = 3;
  EXPECT_EQ(train(still, {.resumes = true, .resume_from = folder_ / "run"}).last_step, 8);
}

TEST_F(EvaluatedRun, NormsOfModulesMakeUpTheWhole) {
  int64_t num_steps = 0;
  const auto look = [&](const StepMetrics& metrics, int64_t) {
    ++num_steps;
    ASSERT_EQ(metrics.module_gradient_norms.size(), 2u);
    EXPECT_EQ(metrics.module_gradient_norms.front().first, "vision");
    double squares = 0;
    for (const auto& [module, norm] : metrics.module_gradient_norms) {
      EXPECT_GT(norm, 0) << module;
      squares += norm * norm;
    }
    EXPECT_NEAR(std::sqrt(squares), metrics.gradient_norm, 1e-12 * metrics.gradient_norm);
  };
  train(config(2, 1e-3), {.run_folder = folder_ / "run", .on_step = look});
  EXPECT_EQ(num_steps, 2);
}

TEST_F(EvaluatedRun, APatternThatFitsNothingIsRefusedBeforeTheRun) {
  TrainConfig wrong = config(2, 1e-3);
  wrong.weight_rules = {{.weights = "visual.*", .learning_rate = 1e-4, .weight_decay = {}},
                        {.weights = "visual.mergr.*", .learning_rate = {}, .weight_decay = 0}};
  const auto report = Trainer(small_plan(), wrong).train({.run_folder = folder_ / "run"});
  ASSERT_FALSE(report.ok());
  EXPECT_EQ(report.error().field, "optimizer.rules[1].weights");
  EXPECT_NE(report.error().problem.find("visual.merger"), std::string::npos) << report.error().message();
  EXPECT_FALSE(std::filesystem::exists(RunFolder{folder_ / "run"}.metrics()));
}

}  // namespace
}  // namespace weft
