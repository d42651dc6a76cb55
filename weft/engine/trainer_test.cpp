#include "weft/engine/trainer.h"

#include <cstdlib>
#include <fstream>

#include <gtest/gtest.h>

#include "tests/support/source_tree.h"
#include "weft/engine/run_claim.h"
#include "weft/engine/run_folder.h"
#include "weft/meaning/check.h"
#include "weft/meaning/parallel_settings.h"
#include "weft/plan/plan_json.h"
#include "weft/spec/scenario.h"

namespace weft {
namespace {

class TrainerApi : public testing::Test {
 protected:
  TrainerApi() {
    std::string name = (std::filesystem::temp_directory_path() / "weft_trainer_XXXXXX").string();
    WEFT_CHECK(mkdtemp(name.data()) != nullptr, "no temporary folder");
    folder_ = name;
  }
  ~TrainerApi() override { std::filesystem::remove_all(folder_); }

  Plan plan(const ParallelSettings& settings) const {
    const Scenarios scenarios(source_tree() / "scenarios");
    auto made = make_plan(*scenarios.model("tiny-vl"), *scenarios.cluster("local_cpu"), *scenarios.workload("tiny_vl"),
                          settings);
    WEFT_CHECK(made.ok(), "{}", made.error().message());
    return *std::move(made);
  }
  static TrainConfig config(int64_t steps) {
    TrainConfig config{.source = "code", .steps = steps, .seed = 3, .device = "cpu", .threads_per_rank = 1};
    config.learning_rate = {.kind = LearningRate::Kind::kConstant, .peak = 2e-3, .total_steps = steps};
    config.checkpoints.interval_steps = steps;
    config.evaluation_batches = 1;
    return config;
  }

  std::filesystem::path folder_;
};

constexpr PrecisionPlan kFp32{.compute = Precision::kFp32, .master = Precision::kFp32, .reduce = Precision::kFp32};

TEST_F(TrainerApi, TrainsEvaluatesPredictsAndFinetunes) {
  const ParallelSettings settings{.data_parallel = 2, .pipeline_stage = 2, .micro_batch_num = 2, .precision = kFp32};
  Trainer trainer(plan(settings), config(6));
  std::vector<double> losses;
  const auto report =
      trainer.train({.run_folder = folder_ / "run", .on_step = [&](const StepMetrics& metrics, int64_t num_steps) {
                       EXPECT_EQ(num_steps, 6);
                       losses.push_back(metrics.loss);
                     }});
  ASSERT_TRUE(report.ok()) << report.error().message();
  ASSERT_TRUE(report->has_value());
  EXPECT_EQ((*report)->last_step, 6);
  ASSERT_EQ(losses.size(), 6u);
  EXPECT_EQ(losses.front(), (*report)->first_loss);
  EXPECT_LT(losses.back(), losses.front());

  const auto before = trainer.evaluate();
  const auto after = trainer.evaluate(folder_ / "run");
  ASSERT_TRUE(before.ok() && after.ok());
  EXPECT_EQ((*after)->step, 6);
  EXPECT_LT((*after)->loss, (*before)->loss);
  EXPECT_EQ((*after)->num_targets, (*before)->num_targets);

  std::ofstream(folder_ / "prompt.json") << R"({"input_ids": [4, 23, 118, 1], "max_new_tokens": 3})";
  const auto predicted =
      trainer.predict(folder_ / "run", {.prompt_file = folder_ / "prompt.json", .ignores_end = true});
  ASSERT_TRUE(predicted.ok()) << predicted.error().message();
  EXPECT_EQ(predicted->prompts.front().tokens.size(), 3u);

  // On other ranks from the weights that the run has left; its first loss is what the run would have had next.
  Trainer other(plan({.micro_batch_num = 4, .precision = kFp32}), config(2));
  std::string said;
  const auto tuned =
      other.finetune(folder_ / "run/model/step-00000006",
                     {.run_folder = folder_ / "tuned",
                      .on_step =
                          [&](const StepMetrics& metrics, int64_t) {
                            if (metrics.step > 1) return;
                            EXPECT_FALSE(other.switch_plan(plan({.micro_batch_num = 2, .precision = kFp32})));
                          },
                      .say = [&](const std::string& line) { said += line + "\n"; }});
  ASSERT_TRUE(tuned.ok()) << tuned.error().message();
  EXPECT_NE(said.find("after step 1 with "), std::string::npos) << said;
  EXPECT_LT(*(*tuned)->first_loss, losses.front() - 0.1);
}

TEST_F(TrainerApi, OnlyCheckpointsBesideStepsNeedACopyOfStates) {
  const Plan one = plan({.micro_batch_num = 4, .precision = kFp32});
  const std::vector<RankNeed> memory = {{.snapshot_bytes = 1e18}};  // more than any machine has
  TrainConfig saves_twice = config(2);
  saves_twice.checkpoints.interval_steps = 1;
  const auto refused = Trainer(one, saves_twice).train({.run_folder = folder_ / "twice", .memory = memory});
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().field, "memory");
  const auto report = Trainer(one, config(2)).train({.run_folder = folder_ / "once", .memory = memory});
  ASSERT_TRUE(report.ok()) << report.error().message();
  EXPECT_TRUE((*report)->is_saved);
}

// Samples do not depend on the plan, so that only rounding may differ.
TEST_F(TrainerApi, AnEncoderBesideThePipelineLearnsAsInline) {
  Plan inline_plan = plan({.data_parallel = 2, .pipeline_stage = 2, .micro_batch_num = 4, .precision = kFp32});
  Plan colocated = inline_plan;
  ModulePlan& vision = colocated.modules.front();
  const int64_t layers = std::ssize(colocated.model.modules.front().layers);
  vision = {.kind = ModuleKind::kVision,
            .placement = ModulePlacement::kColocated,
            .ranks = vision.ranks,
            .axis_order = vision.axis_order,
            .layers = {{layers}},
            .recompute = {{{}}},
            .mbs_scale = 3};
  vision.degrees() = {.tp = 2, .dp = 2, .zero = 1};
  Plan disjoint = colocated;
  disjoint.world_size = disjoint.cluster.devices_per_node = 6;
  disjoint.modules.front().placement = ModulePlacement::kDisjoint;
  disjoint.modules.front().form = EncoderForm::kStream;
  disjoint.modules.front().ranks = {4, 5};
  disjoint.modules.front().tp = 1;
  const auto losses_of = [&](const Plan& trained, const char* name) {
    const auto violations = check_plan(trained);
    EXPECT_TRUE(violations.empty()) << name << ": " << violations.front().field << " " << violations.front().message;
    std::vector<double> losses;
    Trainer trainer(trained, config(3));
    const auto report =
        trainer.train({.run_folder = folder_ / name,
                       .on_step = [&](const StepMetrics& metrics, int64_t) { losses.push_back(metrics.loss); }});
    EXPECT_TRUE(report.ok()) << report.error().message();
    const auto seen = trainer.evaluate(folder_ / name);
    EXPECT_TRUE(seen.ok()) << seen.error().message();
    losses.push_back((*seen)->loss);
    return losses;
  };
  const std::vector<double> expected = losses_of(inline_plan, "inline");
  for (const auto& [found, name] : {std::pair{losses_of(colocated, "colocated"), "colocated"},
                                    std::pair{losses_of(disjoint, "disjoint"), "disjoint"}}) {
    ASSERT_EQ(found.size(), expected.size());
    for (size_t i = 0; i < found.size(); ++i) EXPECT_NEAR(found[i], expected[i], 1e-4 * expected[i]) << name;
  }
}

// Between two steps and in memory: no step is lost, and losses are those of one plan.
TEST_F(TrainerApi, ARunChangesItsPlanWhileItRuns) {
  constexpr PrecisionPlan kFp64{.compute = Precision::kFp64, .master = Precision::kFp64, .reduce = Precision::kFp64};
  const Plan first = plan({.data_parallel = 2, .pipeline_stage = 2, .micro_batch_num = 2, .precision = kFp64});
  const Plan second =
      plan({.data_parallel = 1, .model_parallel = 2, .pipeline_stage = 2, .micro_batch_num = 4, .precision = kFp64});
  const auto losses_of = [&](bool switches, const char* name) {
    std::vector<double> losses;
    Trainer trainer(first, config(6));
    const auto report =
        trainer.train({.run_folder = folder_ / name, .on_step = [&](const StepMetrics& metrics, int64_t) {
                         losses.push_back(metrics.loss);
                         if (!switches) return;
                         if (metrics.step == 2 || metrics.step == 4) {
                           EXPECT_FALSE(trainer.switch_plan(metrics.step == 2 ? second : first));
                         }
                       }});
    EXPECT_TRUE(report.ok()) << report.error().message();
    return losses;
  };
  const std::vector<double> expected = losses_of(false, "straight"), found = losses_of(true, "switched");
  ASSERT_EQ(found.size(), 6u);
  for (size_t i = 0; i < found.size(); ++i) EXPECT_NEAR(found[i], expected[i], 1e-9 * expected[i]) << i;
  // Steps 3 and 4 are by the plan in between; the folder's plan is the last.
  const auto record = read_run_record(folder_ / "switched");
  ASSERT_TRUE(record.ok()) << record.error().message();
  EXPECT_EQ(record->num_other_plan_steps, 2);
  EXPECT_EQ(std::ssize(record->steps), 4);
  const auto kept = read_plan_file(folder_ / "switched/plan.json");
  ASSERT_TRUE(kept.ok()) << kept.error().message();
  EXPECT_EQ(work_hash(*kept), work_hash(first));

  Trainer trainer(first, config(1));
  Plan other = second;
  other.model.config["rope_theta"] = 7;
  const auto refusal = trainer.switch_plan(other);
  ASSERT_TRUE(refusal);
  EXPECT_EQ(refusal->field, "model");
  const auto larger = trainer.switch_plan(plan({.data_parallel = 8, .precision = kFp64}));
  ASSERT_TRUE(larger);
  EXPECT_EQ(larger->field, "world_size");
  Plan longer = second;
  longer.workload.tokens = Distribution::constant(31);
  const auto others = trainer.switch_plan(longer);
  ASSERT_TRUE(others);
  EXPECT_TRUE(others->field.starts_with("workload.")) << others->message();
}

TEST_F(TrainerApi, AFolderIsClaimedByOneRunAndGivenBackByOneThatDidNotBegin) {
  const std::filesystem::path folder = folder_ / "a/run";
  {
    const auto claim = RunClaim::take(folder);
    ASSERT_TRUE(claim.ok()) << claim.error().message();
    EXPECT_TRUE(claim->is_locked());
    EXPECT_EQ(read_claim(folder), claim->text());
    const auto second = RunClaim::take(folder);
    ASSERT_FALSE(second.ok());
    EXPECT_NE(second.error().message().find("is being written by another run (process "), std::string::npos);
    EXPECT_TRUE(std::filesystem::exists(claim_file(folder))) << "the second has taken nothing away";
  }
  EXPECT_FALSE(std::filesystem::exists(folder_ / "a")) << "nothing stays behind";
  {
    auto claim = RunClaim::take(folder);
    ASSERT_TRUE(claim.ok());
    claim->keep();
  }
  EXPECT_TRUE(std::filesystem::exists(claim_file(folder)));
  EXPECT_TRUE(RunClaim::take(folder).ok()) << "a run that has ended holds nothing";
}

TEST_F(TrainerApi, SettingsThatAreNotLegalAreNamed) {
  const Scenarios scenarios(source_tree() / "scenarios");
  const auto problem = [&](const ParallelSettings& settings) {
    const auto made = make_plan(*scenarios.model("tiny-vl"), *scenarios.cluster("local_cpu"),
                                *scenarios.workload("tiny_vl"), settings);
    return made.ok() ? std::string() : made.error().message();
  };
  EXPECT_NE(problem({.data_parallel = 0}).find("data_parallel: is 0"), std::string::npos);
  EXPECT_NE(problem({.pipeline_stage = 2, .schedule = "2f2b"}).find("schedule"), std::string::npos);
  EXPECT_EQ(problem({.data_parallel = 2, .model_parallel = 2, .pipeline_stage = 2}), "");
}

TEST_F(TrainerApi, VirtualStagesOfAVisionLanguageModelTrain) {
  const auto losses_of = [&](const ParallelSettings& settings, const char* name) {
    std::vector<double> losses;
    const auto report = Trainer(plan(settings), config(2))
                            .train({.run_folder = folder_ / name, .on_step = [&](const StepMetrics& metrics, int64_t) {
                                      losses.push_back(metrics.loss);
                                    }});
    EXPECT_TRUE(report.ok()) << report.error().message();
    return losses;
  };
  ParallelSettings settings{.pipeline_stage = 2, .micro_batch_num = 4, .precision = kFp32};
  const std::vector<double> plain = losses_of(settings, "plain");
  settings.virtual_stages = 2;
  const std::vector<double> interleaved = losses_of(settings, "interleaved");
  ASSERT_EQ(plain.size(), 2u);
  ASSERT_EQ(interleaved.size(), 2u);
  for (size_t i = 0; i < 2; ++i) EXPECT_NEAR(interleaved[i], plain[i], 1e-5 * plain[i]);
}

TEST_F(TrainerApi, MetricsOfStepsThatAreDoneAgainGo) {
  const RunFolder run{folder_};
  std::ofstream(run.metrics()) << "{\"step\":1}\n{\"step\":2}\n{\"step\":3}\n{\"st";
  EXPECT_FALSE(rewind_metrics(run, 2));
  std::ifstream file(run.metrics());
  EXPECT_EQ(std::string(std::istreambuf_iterator<char>(file), {}), "{\"step\":1}\n{\"step\":2}\n");
}

}  // namespace
}  // namespace weft
