#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <sys/stat.h>
#include <thread>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "tests/cli/run_program.h"
#include "tests/support/source_tree.h"
#include "weft/base/json.h"

// What someone meets who trains for the first time: plans that are too large, slow machines, and Ctrl-C.
namespace weft::first_training_test {
namespace {

using std::filesystem::path;

/// Samples that take milliseconds.
constexpr const char* kWorkload = R"(global_batch_samples: 4
text_tokens: {values: [12, 20], weights: [0.5, 0.5]}
images_per_sample: {values: [0, 1], weights: [0.5, 0.5]}
patches_per_image: {values: [16], weights: [1]}
precision: fp32
optimizer: adamw
)";

class FirstTraining : public testing::Test {
 protected:
  FirstTraining() {
    std::ostringstream cluster;
    cluster << std::ifstream(source_tree() / "scenarios/clusters/local_cpu.yaml").rdbuf();
    std::string text = cluster.str();
    const std::string usual = "devices_per_node: 8";
    text.replace(text.find(usual), usual.size(), "devices_per_node: 1");
    plan_ = at("plan.json");
    const ProgramRun run = run_weft({"plan", "--model", "tiny-vl", "--cluster", folder_.write("cluster.yaml", text),
                                     "--workload", folder_.write("workload.yaml", kWorkload), "--out", plan_});
    EXPECT_EQ(run.exit_status, 0) << run.err;
  }

  std::string config(int64_t steps, const std::string& more = "") const {
    return folder_.write(
        "train.yaml",
        fmt::format("steps: {}\noptimizer: {{learning_rate: 1.0e-3}}\nevaluation_batches: 1\n{}", steps, more));
  }
  std::string at(const std::string& name) const { return (folder_.path() / name).string(); }
  std::vector<Json> metrics(const std::string& name) const {
    std::vector<Json> lines;
    std::ifstream file(folder_.path() / name / "metrics.jsonl");
    for (std::string line; std::getline(file, line);) lines.push_back(Json::parse(line));
    return lines;
  }
  void wait_for_steps(const std::string& name, size_t num_steps) const {
    for (int waits = 0; waits < 6000 && metrics(name).size() < num_steps; ++waits)
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    ASSERT_GE(metrics(name).size(), num_steps);
  }
  static StartedProgram start(std::vector<std::string> words, const path& folder) {
    words.insert(words.begin(), build_tree() / "weft");
    return start_command(words, folder);
  }

  TemporaryFolder folder_;
  std::string plan_;  ///< one rank
};

testing::AssertionResult says(const ProgramRun& run, int exit_status, const std::string& what) {
  if (run.exit_status == exit_status && run.err.find(what) != std::string::npos) return testing::AssertionSuccess();
  return testing::AssertionFailure() << "exit " << run.exit_status << " with\n"
                                     << run.err << "and not " << exit_status << " with\n"
                                     << what;
}

TEST_F(FirstTraining, APlanLargerThanTheMachineIsRefusedWithBothFiguresBeforeAnythingIsMade) {
  const std::string large = source_tree().string() + "/scenarios/plans/llama3-70b_interleaved_tp8_pp4_vpp5.json";
  const std::string settings = config(2);
  for (const ProgramRun& run : {run_weft({"train", "--plan", large, "--config", settings, "--run", at("run")}),
                                run_weft({"eval", "--plan", large, "--config", settings})}) {
    EXPECT_TRUE(says(run, 1, large + ": memory: 64 ranks on this machine need "));
    EXPECT_TRUE(says(run, 1, "for weights and their states, up to "));
    EXPECT_TRUE(says(run, 1, "but this machine has "));
    EXPECT_TRUE(says(run, 1, "spread the ranks over machines with mpirun"));
  }
  EXPECT_FALSE(std::filesystem::exists(at("run")));
  // Far more threads than a machine bears, were they made first.
  const std::string crowd = source_tree().string() + "/scenarios/plans/qwen2-vl-72b_16384.json";
  EXPECT_TRUE(says(run_weft({"train", "--plan", crowd, "--config", settings, "--run", at("run")}), 1,
                   "16384 ranks on this machine need "));
}

TEST_F(FirstTraining, ARunSaysWhatItPreparesBeforeItsFirstStep) {
  const ProgramRun run = run_weft({"train", "--plan", plan_, "--config", config(3), "--run", at("run")});
  ASSERT_EQ(run.exit_status, 0) << run.err;
  const size_t model = run.err.find("weft: model: tiny-vl, "), ranks = run.err.find("weft: ranks: 1 in this process, "),
               data = run.err.find("weft: data: "), step = run.err.find("step 1/3  loss ");
  ASSERT_NE(step, std::string::npos) << run.err;
  EXPECT_LT(model, ranks) << run.err;
  EXPECT_LT(ranks, data) << run.err;
  EXPECT_LT(data, step) << run.err;
  EXPECT_NE(run.err.find("weights fresh, of seed 0"), std::string::npos) << run.err;
  const size_t second = run.err.find("step 2/3  loss ");
  ASSERT_NE(second, std::string::npos) << run.err;
  const std::string line = run.err.substr(second, run.err.find('\n', second) - second);
  EXPECT_TRUE(line.ends_with(" left")) << "the time of the last step: " << line;
  EXPECT_EQ(run.err.find('\033'), std::string::npos) << "a log has no colours";
}

TEST_F(FirstTraining, OutputsAreCheckedBeforeTheWork) {
  // The plan does not exist: were it read first, the error would name it.
  EXPECT_TRUE(says(run_weft({"train", "--plan", "x", "--config", "x", "--trace", at("missing/out")}), 2, "--trace: "));
  const std::string file = folder_.write("file", "");
  const ProgramRun run = run_weft({"train", "--plan", plan_, "--config", config(2), "--run", file + "/run"});
  EXPECT_TRUE(says(run, 2, file + "/run: cannot be made: "));
  EXPECT_EQ(run.err.find("model: "), std::string::npos) << "nothing was begun: " << run.err;
  const ProgramRun deep = run_weft({"train", "--plan", plan_, "--config", config(1), "--run", at("a/b/c")});
  EXPECT_EQ(deep.exit_status, 0) << deep.err;
}

TEST_F(FirstTraining, MoreThreadsThanAMachineBearsAreRefusedWithTheRange) {
  if (std::thread::hardware_concurrency() >= 32) GTEST_SKIP() << "this machine bears them";
  const ProgramRun run =
      run_weft({"train", "--plan", plan_, "--config", config(2, "threads_per_rank: 1024\n"), "--run", at("run")});
  EXPECT_TRUE(says(run, 2, "train.yaml: threads_per_rank: is 1024, a whole number from 1 to "));
  EXPECT_TRUE(says(run_weft({"predict", "--model", "x", "--prompt-file", "x", "--threads", "1024"}), 2,
                   "--threads: is '1024', a whole number from 1 to "));
}

class SignalledTraining : public FirstTraining, public testing::WithParamInterface<int> {};

TEST_P(SignalledTraining, EndsAfterItsStepAndKeepsIt) {
  const std::string settings = config(100'000, "checkpoints: {interval_steps: 100000}\n");
  const TemporaryFolder output;
  const StartedProgram program = start(
      {"train", "--plan", plan_, "--config", settings, "--run", at("run"), "--trace", at("trace.json")}, output.path());
  wait_for_steps("run", 2);
  kill(program.process, GetParam());
  const ProgramRun run = wait_for(program);
  EXPECT_TRUE(says(run, 3, "weft: train: interrupted, ending after this step"));
  const size_t done = metrics("run").size();
  const std::string checkpoint = at(fmt::format("run/checkpoints/step-{:08}", done));
  EXPECT_TRUE(says(run, 3, fmt::format("train: was interrupted after step {}", done)));
  EXPECT_TRUE(says(run, 3, checkpoint));
  EXPECT_TRUE(says(run, 3, "--resume " + at("run")));
  EXPECT_TRUE(std::filesystem::exists(checkpoint + "/checkpoint.json"));
  EXPECT_TRUE(std::filesystem::exists(at("trace.json")));
  // As the message says.
  const ProgramRun rest =
      run_weft({"train", "--plan", plan_, "--config", config(static_cast<int64_t>(done) + 1), "--resume", at("run")});
  EXPECT_EQ(rest.exit_status, 0) << rest.err;
  EXPECT_EQ(metrics("run").size(), done + 1);
}

INSTANTIATE_TEST_SUITE_P(Signals, SignalledTraining, testing::Values(SIGINT, SIGTERM));

TEST_F(FirstTraining, ASecondSignalEndsARunAtOnce) {
  const TemporaryFolder output;
  const std::string settings = config(100'000, "checkpoints: {interval_steps: 100000}\n");
  const StartedProgram program =
      start({"train", "--plan", plan_, "--config", settings, "--run", at("run")}, output.path());
  wait_for_steps("run", 1);
  kill(program.process, SIGSTOP);  // so that both are there before it can save
  kill(program.process, SIGTERM);
  kill(program.process, SIGINT);
  kill(program.process, SIGCONT);
  EXPECT_EQ(wait_for(program).exit_status, 130);
}

TEST_F(FirstTraining, CtrlCWithoutCheckpointsSaysWhatIsNotKept) {
  const TemporaryFolder output;
  const StartedProgram program =
      start({"train", "--plan", plan_, "--config", config(100'000), "--run", at("run")}, output.path());
  wait_for_steps("run", 1);
  kill(program.process, SIGINT);
  const ProgramRun run = wait_for(program);
  EXPECT_TRUE(says(run, 130, "weights are not kept, since the configuration has no checkpoints"));
  EXPECT_FALSE(std::filesystem::exists(at("run/checkpoints")));
}

TEST_F(FirstTraining, CtrlCEndsEvaluationAndPrediction) {
  const std::string settings =
      folder_.write("long.yaml", "steps: 1\noptimizer: {learning_rate: 1.0e-3}\nevaluation_batches: 1000000\n");
  // Nobody writes into the pipe, so the program waits in it.
  ASSERT_EQ(mkfifo(at("prompt").c_str(), 0600), 0);
  const std::string model = source_tree().string() + "/tests/parity/fixtures/llama_tied";
  for (const std::vector<std::string>& words :
       {std::vector<std::string>{"eval", "--plan", plan_, "--config", settings},
        std::vector<std::string>{"predict", "--model", model, "--prompt-file", at("prompt")}}) {
    const TemporaryFolder output;
    const StartedProgram program = start(words, output.path());
    std::this_thread::sleep_for(std::chrono::seconds(2));
    kill(program.process, SIGINT);
    EXPECT_TRUE(says(wait_for(program), 130, words[0] + ": was interrupted before it was done"));
  }
}

TEST_F(FirstTraining, ALauncherThatIsHalfSetUpIsToldWhatIsWrong) {
  const std::vector<std::string> words = {"train", "--plan", plan_, "--config", config(1)};
  EXPECT_TRUE(says(run_weft(words, {"WORLD_SIZE=4", "RANK=4"}), 2, "RANK: '4' is no whole number from 0 to 3"));
  EXPECT_TRUE(says(run_weft({"train", "--plan", "missing.json", "--config", "x"}, {"WORLD_SIZE=4", "RANK=4"}), 2,
                   "missing.json: cannot be read"));
  EXPECT_TRUE(says(run_weft(words, {"WORLD_SIZE=4", "RANK=0", "MASTER_ADDR=localhost", "MASTER_PORT=29500"}), 2,
                   "1 rank is needed, but the launcher started 4 processes"));
}

TEST_F(FirstTraining, AnEvaluationOfNoRunIsToldOfItsCheckpoint) {
  EXPECT_TRUE(says(run_weft({"eval", "--checkpoint", "nosuch"}), 2, "--checkpoint: 'nosuch' does not exist. "));
  std::filesystem::create_directory(at("empty"));
  EXPECT_TRUE(says(run_weft({"eval", "--checkpoint", at("empty")}), 2, "holds no training run"));
  EXPECT_TRUE(says(run_weft({"eval", "--checkpoint", config(1)}), 2, "is a file, a folder is needed"));
  EXPECT_TRUE(says(run_weft({"eval"}), 2, "--plan: is missing, and there is no run to take it from"));
}

TEST_F(FirstTraining, AWrongConfigurationLeadsToARightOne) {
  const auto refuses = [&](const std::string& file, const std::string& what) {
    return says(run_weft({"train", "--plan", plan_, "--config", file, "--run", at("run")}), 2, what);
  };
  EXPECT_TRUE(refuses(plan_, "looks like a plan"));
  EXPECT_TRUE(refuses(folder_.write("a.yaml", "steps: 3\nlearning_rate: 1\n"),
                      "optimizer: is missing, a mapping with a learning_rate is needed. Add it: 'optimizer: {"));
  EXPECT_TRUE(refuses(folder_.write("b.yaml", "steps: 3\noptimizer: {lr: 1}\n"),
                      "optimizer.learning_rate: is missing. Is 'lr' meant to be it? Call it learning_rate."));
  EXPECT_TRUE(refuses(config(3, "weights: nowhere\n"), "train.yaml: weights: is 'nowhere', a folder is needed"));
  EXPECT_TRUE(refuses(config(3, "device: gpu\n"), "cpu or cuda is needed. Did you mean 'cuda'?"));
  EXPECT_TRUE(refuses(config(3, "checkpoints: {interval: 5}\n"), "Is 'interval' meant to be it?"));
  EXPECT_FALSE(std::filesystem::exists(at("run")));
}

TEST_F(FirstTraining, TheScheduleEndsWithTheLastStepAndGoesOnAsItWas) {
  const std::string settings = config(4, "checkpoints: {interval_steps: 2}\n");
  ASSERT_EQ(run_weft({"train", "--plan", plan_, "--config", settings, "--run", at("whole")}).exit_status, 0);
  const std::vector<Json> whole = metrics("whole");
  ASSERT_EQ(whole.size(), 4u);
  EXPECT_EQ(whole[0]["learning_rate"].get<double>(), 1e-3);
  EXPECT_NEAR(whole[3]["learning_rate"].get<double>(), 1e-4, 1e-18) << "a tenth, as the default has it";
  const ProgramRun rest = run_weft({"train", "--plan", plan_, "--config", settings, "--resume",
                                    at("whole/checkpoints/step-00000002"), "--run", at("rest")});
  ASSERT_EQ(rest.exit_status, 0) << rest.err;
  const std::vector<Json> later = metrics("rest");
  ASSERT_EQ(later.size(), 2u);
  for (size_t i = 0; i < 2; ++i) EXPECT_EQ(later[i]["learning_rate"], whole[i + 2]["learning_rate"]);
  // A checkpoint's folder finds the plan and the configuration of its run.
  EXPECT_EQ(run_weft({"eval", "--checkpoint", at("whole/checkpoints/step-00000002")}).exit_status, 0);
}

}  // namespace
}  // namespace weft::first_training_test
