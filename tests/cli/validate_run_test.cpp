#include <fstream>
#include <set>
#include <sstream>

#include <gtest/gtest.h>

#include "tests/cli/run_program.h"
#include "tests/support/source_tree.h"
#include "weft/base/json.h"

namespace weft::validate_run_test {
namespace {

std::string text_of(const std::filesystem::path& file) {
  std::ostringstream text;
  text << std::ifstream(file, std::ios::binary).rdbuf();
  return text.str();
}

constexpr const char* kWorkload = R"(global_batch_samples: 8
text_tokens: {values: [12, 20, 33], weights: [0.3, 0.4, 0.3]}
images_per_sample: {values: [0, 1, 2], weights: [0.3, 0.5, 0.2]}
patches_per_image: {values: [16, 64], weights: [0.5, 0.5]}
precision: fp32
optimizer: adamw
)";

constexpr const char* kConfig =
    "steps: 6\nseed: 7\nthreads_per_rank: 1\noptimizer: {learning_rate: 3.0e-3}\n"
    "learning_rate_schedule: {kind: constant}\ncheckpoints: {interval_steps: 3}\n";

/// Runs of a tiny model on two ranks.
class ValidateRun : public testing::Test {
 protected:
  std::string plan(const std::string& name, const std::string& space) {
    std::string cluster = text_of(source_tree() / "scenarios/clusters/local_cpu.yaml");
    const std::string usual = "devices_per_node: 8";
    cluster.replace(cluster.find(usual), usual.size(), "devices_per_node: 2");
    const std::string file = path(name + ".json");
    const ProgramRun run = run_weft({"plan", "--model", "tiny-vl", "--cluster", folder_.write("cluster.yaml", cluster),
                                     "--workload", folder_.write("workload.yaml", kWorkload), "--space",
                                     folder_.write(name + ".yaml", space), "--out", file});
    EXPECT_EQ(run.exit_status, 0) << run.err;
    return file;
  }
  std::string pipeline_plan() {
    return plan("pipeline",
                "mbs: 2\nllm: {tp: 1, pp: 2, cp: 1, dp: 1}\nvision: {placement: inline}\nschedule: [1f1b]\n");
  }
  Json train(const std::string& plan, const std::string& run) {
    const ProgramRun trained = run_weft(
        {"train", "--plan", plan, "--config", folder_.write("train.yaml", kConfig), "--run", path(run), "--json"});
    EXPECT_EQ(trained.exit_status, 0) << trained.err;
    return Json::parse(trained.out);
  }
  static Json validate(std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), "validate");
    arguments.emplace_back("--json");
    const ProgramRun run = run_weft(arguments);
    EXPECT_EQ(run.exit_status, 0) << run.err;
    return run.exit_status == 0 ? Json::parse(run.out) : Json();
  }
  static std::string refusal(std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), "validate");
    const ProgramRun run = run_weft(arguments);
    EXPECT_EQ(run.exit_status, 2) << run.out << run.err;
    EXPECT_EQ(run.out, "");
    return run.err;
  }
  std::string path(const std::string& name) const { return (folder_.path() / name).string(); }

  TemporaryFolder folder_;
};

testing::AssertionResult says(const std::string& text, const std::string& what) {
  if (text.find(what) != std::string::npos) return testing::AssertionSuccess();
  return testing::AssertionFailure() << text << "does not say\n" << what;
}

std::set<std::string> kinds_in(const Json& comparison) {
  std::set<std::string> kinds;
  for (const Json& action : comparison["actions"]) {
    kinds.insert(action["kind"]);
    EXPECT_GE(action["measured_ms"].get<double>(), 0);
    if (!action["is_compute"]) continue;
    EXPECT_GT(action["predicted_ms"].get<double>(), 0) << action["kind"];
  }
  return kinds;
}

TEST_F(ValidateRun, EveryKindOfActionRankAndStepIsComparedAndTheRunKeepsIt) {
  const std::string plan = pipeline_plan();
  const Json report = train(plan, "run");
  const Json& own = report["prediction"];
  EXPECT_GT(own["step_time_ms"]["predicted"].get<double>(), 0);
  EXPECT_GT(own["step_time_ms"]["measured"].get<double>(), 0);
  const std::string trace = path("both.json");
  const Json compared = validate({"--plan", plan, "--run", path("run"), "--trace", trace});
  EXPECT_EQ(compared["step_time_error_percent"], own["step_time_error_percent"]);
  EXPECT_EQ(kinds_in(compared),
            (std::set<std::string>{"F", "B", "SEND_F", "RECV_F", "SEND_B", "RECV_B", "REDUCE_GRAD", "UPDATE"}));
  EXPECT_EQ(compared["ranks"].size(), 2u);
  ASSERT_EQ(compared["steps"].size(), 6u);
  EXPECT_EQ(compared["memory_from"], "the step's own lengths");
  // The prediction for a step's own lengths is a bound, and a near one.
  EXPECT_FALSE(compared["memory_is_exceeded"].get<bool>());
  EXPECT_LE(compared["memory_error_percent"].get<double>(), 15);
  for (const Json& step : compared["steps"]) EXPECT_GT(step["memory"]["measured_bytes"].get<double>(), 0);
  double predicted = 0, measured = 0;
  for (const Json& term : compared["terms"]) {
    predicted += term["predicted_ms"].get<double>();
    measured += term["measured_ms"].get<double>();
  }
  EXPECT_NEAR(predicted, compared["step_time_ms"]["predicted"].get<double>(), 0.2 * predicted);
  EXPECT_NEAR(measured, compared["step_time_ms"]["measured"].get<double>(), 0.2 * measured);
  EXPECT_FALSE(compared["most_wrong"]["mend"].get<std::string>().empty());
  const Json kept = Json::parse(text_of(path("run/prediction.json")));
  EXPECT_EQ(kept["step_time_error_percent"], own["step_time_error_percent"]);
  const std::string events = text_of(trace);
  EXPECT_TRUE(says(events, "rank 1, measured"));
  EXPECT_TRUE(says(events, "rank 1, predicted"));
  const ProgramRun shown = run_weft({"validate", "--plan", plan, "--run", path("run")});
  EXPECT_EQ(shown.exit_status, 0) << shown.err;
  EXPECT_TRUE(says(shown.out, "most wrong"));
}

TEST_F(ValidateRun, AProfileLearnsFromARunAndPredictsIt) {
  const std::string plan = pipeline_plan();
  train(plan, "run");
  const std::string learned = path("learned.json");
  const ProgramRun run = run_weft({"profile", "--update", path("run"), "--out", learned, "--json"});
  ASSERT_EQ(run.exit_status, 0) << run.err;
  const Json report = Json::parse(run.out);
  EXPECT_GT(report["modules"]["llm"]["forward"].get<double>(), 0);
  // Of actions that compute it has learned what they took; what ranks wait for is not for a profile to say.
  const Json compared = validate({"--run", path("run"), "--profile", learned});
  for (const Json& action : compared["actions"]) {
    if (action["kind"] != "F" && action["kind"] != "B") continue;
    const double work = action["measured_ms"].get<double>() - action["measured_communication_ms"].get<double>();
    const double said = action["predicted_ms"].get<double>() - action["predicted_communication_ms"].get<double>();
    EXPECT_NEAR(said, work, 0.5 * work) << action["kind"];
  }
  const ProgramRun alone = run_weft({"profile", "--from-profile", learned, "--out", learned});
  EXPECT_EQ(alone.exit_status, 2);
  EXPECT_TRUE(says(alone.err, "is given without a run to learn from"));
}

TEST_F(ValidateRun, EncodersBesideThePipelineAreComparedToo) {
  const std::string plan = this->plan(
      "beside", "mbs: 2\nllm: {tp: 1, pp: 1, cp: 1, dp: 2}\nvision: {placement: colocated, form: before, tp: 1}\n");
  train(plan, "run");
  const Json compared = validate({"--run", path("run")});
  const std::set<std::string> kinds = kinds_in(compared);
  for (const char* kind : {"F", "B", "EF", "EB", "UPDATE", "EU", "REDUCE_GRAD", "ER"})
    EXPECT_TRUE(kinds.contains(kind)) << kind;
  EXPECT_EQ(compared["memory_from"], "the step's own lengths");
  EXPECT_FALSE(compared["memory_is_exceeded"].get<bool>());
}

TEST_F(ValidateRun, SeveralRunsHaveOneErrorAndRunsThatGoOnKeepTheirRecord) {
  const std::string plan = pipeline_plan();
  train(plan, "first");
  train(plan, "second");
  const Json all = validate({"--runs", path("first"), path("second")});
  EXPECT_EQ(all["runs"], 2);
  EXPECT_EQ(all["rows"].size(), 2u);
  EXPECT_EQ(all["by_model"]["tiny-vl"]["runs"], 2);
  EXPECT_EQ(all["by_device"].size(), 1u);
  const std::string longer = folder_.write("longer.yaml", std::string(kConfig).replace(7, 1, "8"));
  const ProgramRun resumed = run_weft({"train", "--plan", plan, "--config", longer, "--resume", path("first")});
  ASSERT_EQ(resumed.exit_status, 0) << resumed.err;
  const Json compared = validate({"--run", path("first")});
  EXPECT_EQ(compared["steps"].size(), 8u);
}

TEST_F(ValidateRun, OtherPlansCutOffRecordsAndEmptyRunsAreSaidPlainly) {
  const std::string plan = pipeline_plan();
  train(plan, "run");
  const std::string other = this->plan("other",
                                       "mbs: 1\nllm: {tp: 1, pp: 2, cp: 1, dp: 1}\nvision: {placement: inline}\n"
                                       "schedule: [1f1b]\n");
  EXPECT_TRUE(says(refusal({"--plan", other, "--run", path("run")}), "is of another plan"));
  EXPECT_TRUE(says(refusal({"--plan", plan}), "--run: is missing"));
  EXPECT_TRUE(says(refusal({"--plan", plan, "--run", path("nothing")}), "is no folder"));
  EXPECT_TRUE(says(refusal({"--run", path("run"), "--published"}), "is given with runs of others"));
  EXPECT_TRUE(says(refusal({"--runs", path("run"), "--trace", path("t.json")}), "--trace: is given with --runs"));
  EXPECT_TRUE(says(refusal({"--published", "--profile", "p.json"}), "--profile: is given without a run"));
  const std::string record = text_of(path("run/steps.jsonl"));
  std::ofstream(path("run/steps.jsonl")) << record.substr(0, record.size() - 20);
  EXPECT_TRUE(says(refusal({"--run", path("run")}), "is cut off"));
  std::ofstream(path("run/steps.jsonl")) << record.substr(0, record.find('\n') + 1);
  EXPECT_TRUE(says(refusal({"--run", path("run")}), "has no step"));
  std::filesystem::remove(path("run/steps.jsonl"));
  EXPECT_TRUE(says(refusal({"--run", path("run")}), "has no steps.jsonl"));
}

}  // namespace
}  // namespace weft::validate_run_test
