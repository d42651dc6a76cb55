// Files that a rank reads or writes for longer than ranks wait for each other.
#include <chrono>
#include <csignal>
#include <fcntl.h>
#include <sys/stat.h>
#include <thread>
#include <unistd.h>

#include "tests/cli/training_runs.h"

namespace weft::train_test {
namespace {

namespace fs = std::filesystem;

/// A pipe in place of a file: whoever opens it waits until the other end is opened, which comes late.
fs::path slow_file(const fs::path& path) {
  EXPECT_EQ(mkfifo(path.c_str(), 0600), 0) << path;
  return path;
}

class SlowDisk : public TrainingRuns {
 protected:
  static constexpr std::chrono::milliseconds kLate{5000};

  static std::vector<std::string> short_waits() { return {"WEFT_COMM_TIMEOUT_S=2"}; }
  std::string fixture_plan() {
    return plan("two", 2, "mbs: 2\nllm: {tp: 1, pp: 2, cp: 1, dp: 1}\nschedule: [1f1b]\n", fixture().string(),
                "global_batch_samples: 8\ntext_tokens: 12\nprecision: fp64\noptimizer: adamw\n");
  }
  static fs::path fixture() { return source_tree() / "tests/parity/fixtures/qwen2_sharded"; }
};

// The second rank's copy of the weights is on the slow disk.
TEST_F(SlowDisk, ARankThatReadsWeightsForLongIsWaitedFor) {
  const std::string plan_file = fixture_plan();
  const fs::path slow = folder_.path() / "slow";
  fs::copy(fixture(), slow);
  const std::string index = "model.safetensors.index.json", text = text_of(slow / index);
  fs::remove(slow / index);
  slow_file(slow / index);
  const auto config_of = [&](const std::string& name, const fs::path& weights) {
    return folder_.write(name, config_text(2, 0, "weights: " + weights.string() + "\n"));
  };
  const auto rank = [&](const std::string& config) {
    return std::vector<std::string>{build_tree() / "weft", "train", "--plan", plan_file, "--config", config, "--run",
                                    run_folder("run")};
  };
  std::vector<std::string> words = {source_tree().string() + "/scripts/mpirun"};
  for (const auto& config : {config_of("fast.yaml", fixture()), config_of("slow.yaml", slow)}) {
    if (words.size() > 1) words.emplace_back(":");
    for (const char* word : {"-n", "1"}) words.emplace_back(word);
    for (const std::string& word : rank(config)) words.push_back(word);
  }
  const TemporaryFolder output;
  const StartedProgram run = start_command(words, output.path(), short_waits());
  std::signal(SIGPIPE, SIG_IGN);
  const int pipe = open((slow / index).c_str(), O_WRONLY);  // when the rank opens it
  std::this_thread::sleep_for(kLate);
  EXPECT_EQ(write(pipe, text.data(), text.size()), static_cast<ssize_t>(text.size()));
  close(pipe);
  const ProgramRun ended = wait_for(run);
  EXPECT_EQ(ended.exit_status, 0) << ended.err;
  EXPECT_EQ(metrics("run").size(), 2u);
}

TEST_F(SlowDisk, WhatTheFirstRankWritesBetweenStepsIsWaitedFor) {
  fs::create_directories(run_folder("run"));
  const fs::path lines = slow_file(fs::path(run_folder("run")) / "evaluations.jsonl");
  const TemporaryFolder output;
  const StartedProgram run =
      start_command({build_tree() / "weft", "train", "--plan", two_ranks_plan(), "--config",
                     config(2, 0, "evaluation: {interval_steps: 1}\n"), "--run", run_folder("run")},
                    output.path(), short_waits());
  for (int waits = 0; waits < 6000 && metrics("run").empty(); ++waits)
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  std::this_thread::sleep_for(kLate);
  const int pipe = open(lines.c_str(), O_RDONLY | O_NONBLOCK);
  const ProgramRun ended = wait_for(run);
  close(pipe);
  EXPECT_EQ(ended.exit_status, 0) << ended.err;
  EXPECT_EQ(metrics("run").size(), 2u);
}

}  // namespace
}  // namespace weft::train_test
