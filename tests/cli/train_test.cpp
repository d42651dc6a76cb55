#include <chrono>
#include <cmath>
#include <csignal>
#include <cstdlib>
#include <fstream>
#include <map>
#include <random>
#include <sstream>
#include <thread>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "tests/cli/training_runs.h"
#include "tests/support/source_tree.h"
#include "weft/base/json.h"

namespace weft::train_test {
namespace {

using std::filesystem::path;

const path kFixtures = source_tree() / "tests/parity/fixtures";

class Train : public TrainingRuns {};

TEST_F(Train, TheLossFallsAndARunLeavesMetricsACheckpointAndATrace) {
  const std::string plan = two_ranks_plan();
  const std::string trace = run_folder("trace.json");
  const ProgramRun run = run_weft(
      {"train", "--plan", plan, "--config", config(30, 15), "--run", run_folder("run"), "--trace", trace, "--json"});
  ASSERT_EQ(run.exit_status, 0) << run.err;
  const Json report = Json::parse(run.out);
  EXPECT_EQ(report["last_step"], 30);
  EXPECT_LT(report["last"]["loss"].get<double>(), report["first_loss"].get<double>() - 0.3);
  const std::vector<Json> lines = metrics("run");
  ASSERT_EQ(lines.size(), 30u);
  for (size_t i = 0; i < lines.size(); ++i) {
    EXPECT_EQ(lines[i]["step"], i + 1);
    for (const char* key : {"loss", "gradient_norm", "tokens_per_s", "model_flops_utilization"})
      EXPECT_GT(lines[i][key].get<double>(), 0) << key;
    ASSERT_EQ(lines[i]["peak_memory_gib"].size(), 2u);
    for (size_t rank = 0; rank < 2; ++rank) {
      EXPECT_GT(lines[i]["peak_memory_gib"][rank].get<double>(), 0);
      const double parts = lines[i]["compute_ms"][rank].get<double>() +
                           lines[i]["communication_ms"][rank].get<double>() + lines[i]["bubble_ms"][rank].get<double>();
      EXPECT_NEAR(parts, lines[i]["step_ms"].get<double>(), 0.5 * parts);
      EXPECT_GE(lines[i]["communication_ms"][rank].get<double>(), 0);
      EXPECT_GT(lines[i]["bubble_ms"][rank].get<double>(), 0) << "two ranks of a pipeline wait for each other";
    }
  }
  EXPECT_EQ(lines[0]["learning_rate"], 0);
  EXPECT_EQ(lines[5]["learning_rate"], 3e-3);
  EXPECT_TRUE(std::filesystem::exists(path(run_folder("run")) / "checkpoints/step-00000030/checkpoint.json"));
  const Json events = Json::parse(text_of(trace))["traceEvents"];
  int forwards[2] = {0, 0};
  for (const Json& event : events) {
    if (event["ph"] == "X" && event["cat"] == "F") ++forwards[event["pid"].get<int>()];
  }
  EXPECT_EQ(forwards[0], 4);
  EXPECT_EQ(forwards[1], 4);
}

TEST_F(Train, ARunThatGoesOnIsTheRunThatDidNotStop) {
  const std::string plan = two_ranks_plan();
  ASSERT_EQ(run_weft({"train", "--plan", plan, "--config", config(9, 3), "--run", run_folder("whole")}).exit_status, 0);
  ASSERT_EQ(run_weft({"train", "--plan", plan, "--config", config(6, 3), "--run", run_folder("parts")}).exit_status, 0);
  const ProgramRun rest =
      run_weft({"train", "--plan", plan, "--config", config(9, 3), "--resume", run_folder("parts")});
  ASSERT_EQ(rest.exit_status, 0) << rest.err;
  // A checkpoint that is not the newest goes on elsewhere, and its own run stays as it is.
  const std::string from = run_folder("parts") + "/checkpoints/step-00000003";
  EXPECT_TRUE(says(refusal({"--plan", plan, "--config", config(9, 3), "--resume", from}), "is not the newest"));
  EXPECT_TRUE(says(refusal({"--plan", plan, "--config", config(9, 3), "--resume", from, "--run", run_folder("whole")}),
                   "holds a run already"));
  const ProgramRun other =
      run_weft({"train", "--plan", plan, "--config", config(9, 3), "--resume", from, "--run", run_folder("other")});
  ASSERT_EQ(other.exit_status, 0) << other.err;
  const std::vector<Json> whole = metrics("whole"), parts = metrics("parts"), others = metrics("other");
  ASSERT_EQ(whole.size(), 9u);
  ASSERT_EQ(parts.size(), 9u);
  ASSERT_EQ(others.size(), 6u);
  for (size_t i = 0; i < 9; ++i) {
    for (const char* key : {"loss", "gradient_norm"}) {
      EXPECT_EQ(whole[i][key], parts[i][key]) << key << " of step " << i;
      if (i >= 3) {
        EXPECT_EQ(whole[i][key], others[i - 3][key]) << key << " of step " << i;
      }
    }
  }
  for (const char* file : {"rank-00000.safetensors", "rank-00001.safetensors"}) {
    const path there = path("checkpoints/step-00000009") / file;
    for (const char* run : {"parts", "other"})
      EXPECT_EQ(text_of(run_folder("whole") / there), text_of(run_folder(run) / there)) << run << "/" << file;
  }
}

TEST_F(Train, LossesAreThoseOfOneRankWhateverTheRanks) {
  const std::string one = plan("one", 1, "mbs: 4\nllm: {tp: 1, pp: 1, cp: 1, dp: 1}\nvision: {placement: inline}\n");
  const std::string eight =
      plan("eight", 8, "mbs: 1\nllm: {tp: 2, pp: 2, cp: 1, dp: 2}\nvision: {placement: inline}\n");
  const std::string settings = config(4, 0);
  ASSERT_EQ(run_weft({"train", "--plan", one, "--config", settings, "--run", run_folder("one")}).exit_status, 0);
  const ProgramRun threads = run_weft({"train", "--plan", eight, "--config", settings, "--run", run_folder("eight")});
  ASSERT_EQ(threads.exit_status, 0) << threads.err;
  const ProgramRun processes =
      run_weft_with_mpi(8, {"train", "--plan", eight, "--config", settings, "--run", run_folder("mpi")});
  ASSERT_EQ(processes.exit_status, 0) << processes.err;
  EXPECT_TRUE(says(processes.out, "loss"));
  EXPECT_EQ(processes.out.find("loss", processes.out.find("loss") + 1), std::string::npos) << "one process reports";
  const std::vector<Json> a = metrics("one"), b = metrics("eight"), c = metrics("mpi");
  ASSERT_EQ(a.size(), 4u);
  ASSERT_EQ(b.size(), 4u);
  ASSERT_EQ(c.size(), 4u);
  for (size_t i = 0; i < 4; ++i) {
    for (const char* key : {"loss", "gradient_norm"}) {
      const double expected = a[i][key];
      EXPECT_NEAR(b[i][key].get<double>(), expected, 1e-9 * expected) << key << " of step " << i;
      EXPECT_NEAR(c[i][key].get<double>(), expected, 1e-9 * expected) << key << " of step " << i;
    }
    EXPECT_EQ(a[i]["tokens"], b[i]["tokens"]);
  }
}

TEST_F(Train, EvaluationSeesWhatTrainingLearnt) {
  const std::string plan = two_ranks_plan();
  const std::string settings = config(30, 30);
  const auto loss = [&](std::vector<std::string> more) {
    std::vector<std::string> arguments = {"eval", "--plan", plan, "--config", settings, "--json"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    const ProgramRun run = run_weft(arguments);
    EXPECT_EQ(run.exit_status, 0) << run.err;
    return run.exit_status == 0 ? Json::parse(run.out)["loss"].get<double>() : 0.0;
  };
  const double fresh = loss({});
  EXPECT_NEAR(fresh, std::log(1024), 0.3) << "fresh weights know nothing of 1024 tokens";
  ASSERT_EQ(run_weft({"train", "--plan", plan, "--config", settings, "--run", run_folder("run")}).exit_status, 0);
  const double learnt = loss({"--checkpoint", run_folder("run")});
  EXPECT_LT(learnt, fresh - 0.3);
  // On other ranks, and with the run's own plan and configuration.
  const ProgramRun alone =
      run_weft({"eval", "--plan", this->plan("one", 1, "mbs: 4\nllm: {cp: 1}\nvision: {placement: inline}\n"),
                "--checkpoint", run_folder("run"), "--json"});
  ASSERT_EQ(alone.exit_status, 0) << alone.err;
  EXPECT_NEAR(Json::parse(alone.out)["loss"].get<double>(), learnt, 1e-9 * learnt);
  const ProgramRun own = run_weft({"eval", "--checkpoint", run_folder("run"), "--json"});
  ASSERT_EQ(own.exit_status, 0) << own.err;
  EXPECT_NEAR(Json::parse(own.out)["loss"].get<double>(), learnt, 1e-9 * learnt);
  const ProgramRun predicted =
      run_weft({"predict", "--run", run_folder("run"), "--prompt-file",
                folder_.write("prompt.json", R"({"input_ids": [4, 23, 118], "max_new_tokens": 2})"), "--json"});
  ASSERT_EQ(predicted.exit_status, 0) << predicted.err;
  EXPECT_EQ(Json::parse(predicted.out)["prompts"][0]["tokens"].size(), 2u);
}

TEST_F(Train, FinetuningStartsFromGivenWeights) {
  const std::string model = (kFixtures / "qwen2_vl_train").string();
  const std::string one = plan("one", 1, "mbs: 4\nllm: {cp: 1}\nvision: {placement: inline}\n", model);
  const std::string settings = config(1, 0, "weights: " + model + "\n");
  const ProgramRun run = run_weft({"train", "--plan", one, "--config", settings, "--run", run_folder("run"), "--json"});
  ASSERT_EQ(run.exit_status, 0) << run.err;
  const std::string fresh = config(1, 0);
  const ProgramRun other = run_weft({"train", "--plan", one, "--config", fresh, "--run", run_folder("o"), "--json"});
  ASSERT_EQ(other.exit_status, 0) << other.err;
  EXPECT_NE(Json::parse(run.out)["first_loss"], Json::parse(other.out)["first_loss"]);
  const std::string again = config(1, 0, "weights: " + model + "\n");
  EXPECT_TRUE(says(refusal({"--plan", two_ranks_plan(), "--config", again, "--run", run_folder("x")}),
                   "config.json: is of another model than the plan's tiny-vl"));
}

TEST_F(Train, ALossThatIsNotFiniteStopsBeforeWeightsChange) {
  const std::string settings = folder_.write("nan.yaml",
                                             "steps: 9\noptimizer: {learning_rate: 1.0e+6, max_gradient_norm: 0}\n"
                                             "learning_rate_schedule: {kind: constant}\n"
                                             "checkpoints: {interval_steps: 1}\nthreads_per_rank: 1\n");
  std::string text(kWorkload);
  text.replace(text.find("fp64"), 4, "fp32");
  const std::string plan_file =
      plan("two32", 2, "mbs: 2\nllm: {tp: 1, pp: 2, cp: 1, dp: 1}\nvision: {placement: inline}\n", "tiny-vl", text);
  const std::string told =
      refusal({"--plan", plan_file, "--config", settings, "--run", run_folder("run")}, /*exit_status=*/1);
  EXPECT_TRUE(says(told, "is not finite: "));
  EXPECT_TRUE(says(told, " module "));
  const size_t done = metrics("run").size();
  EXPECT_TRUE(says(told, fmt::format("step {}: ", done + 1)));
  EXPECT_TRUE(
      std::filesystem::exists(path(run_folder("run")) / fmt::format("checkpoints/step-{:08}/checkpoint.json", done)));
}

TEST_F(Train, BadInputIsNamedAndNothingIsLost) {
  const std::string plan_file = two_ranks_plan();
  const auto with = [&](const std::string& settings, std::vector<std::string> more = {}) {
    std::vector<std::string> arguments = {"--plan", plan_file, "--config", settings, "--run", run_folder("new")};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return refusal(arguments);
  };
  EXPECT_TRUE(says(with(folder_.write("a.yaml", "step: 3\noptimizer: {learning_rate: 1}\n")), "steps: is missing"));
  EXPECT_TRUE(says(with(config(3, 0, "optimiser: {}\n")), "optimiser"));
  EXPECT_TRUE(says(with(config(3, 0, "optimiser: {}\n")), "Did you mean 'optimizer'?"));
  EXPECT_TRUE(says(with(folder_.write("b.yaml", "steps: 3\noptimizer: {lr: 1}\n")), "optimizer.learning_rate"));
  EXPECT_TRUE(says(with(config(3, 0, "weights: /nowhere\n")), "/nowhere"));
  EXPECT_TRUE(says(with(config(3, 0, "device: tpu\n")), "cpu or cuda is needed"));
  EXPECT_TRUE(says(with("/nowhere.yaml"), "/nowhere.yaml"));
  EXPECT_TRUE(says(with(config(3, 0), {"--resume", "/nowhere"}), "/nowhere"));
  EXPECT_TRUE(says(with(config(3, 0), {"--resume"}), "is no folder"));
  EXPECT_FALSE(std::filesystem::exists(run_folder("new"))) << "nothing was begun";

  ASSERT_EQ(run_weft({"train", "--plan", plan_file, "--config", config(2, 2), "--run", run_folder("run")}).exit_status,
            0);
  EXPECT_TRUE(says(refusal({"--plan", plan_file, "--config", config(4, 2), "--run", run_folder("run")}),
                   "holds a run already"));
  const std::string small =
      plan("text", 2, "mbs: 2\nllm: {tp: 2, pp: 1, cp: 1, dp: 1}\nvision: {placement: inline}\n", "small-vl");
  const std::string told = refusal({"--plan", small, "--config", config(4, 2), "--resume", run_folder("run")});
  EXPECT_TRUE(says(told, "model: is small-vl"));
  EXPECT_TRUE(says(refusal({"--plan", plan_file, "--config", config(1, 2), "--resume", run_folder("run")}),
                   "steps: is 1, but"));
  EXPECT_EQ(metrics("run").size(), 2u);

  const auto times = [](const std::string& text, const std::string& what) {
    int count = 0;
    for (size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + 1)) ++count;
    return count;
  };
  const ProgramRun bad_config = run_weft_with_mpi(
      2, {"train", "--plan", plan_file, "--config", config(3, 0, "optimiser: {}\n"), "--run", run_folder("m")});
  EXPECT_NE(bad_config.exit_status, 0);
  EXPECT_EQ(times(bad_config.err, "weft: "), 1) << bad_config.err;
  const ProgramRun bad_plan =
      run_weft_with_mpi(2, {"train", "--plan", "/nowhere", "--config", config(3, 0), "--run", run_folder("m")});
  EXPECT_EQ(times(bad_plan.err, "weft: "), 1) << bad_plan.err;
  const ProgramRun wrong_size =
      run_weft_with_mpi(3, {"train", "--plan", plan_file, "--config", config(2, 0), "--run", run_folder("m")});
  EXPECT_NE(wrong_size.exit_status, 0);
  EXPECT_TRUE(says(wrong_size.err, "2 ranks are needed, but the launcher started 3 processes"));
  EXPECT_EQ(times(wrong_size.err, "ranks are needed"), 1) << wrong_size.err;
  // What is not run yet is refused before anybody begins.
  Json half = Json::parse(text_of(plan_file));
  half["precision"]["compute"] = "fp16";
  const std::string half_file = folder_.write("half.json", half.dump());
  EXPECT_TRUE(says(refusal({"--plan", half_file, "--config", config(3, 0), "--run", run_folder("i")}),
                   "precision.compute: is fp16"));
  EXPECT_FALSE(std::filesystem::exists(run_folder("i")));
}

/// Processes that descend from one: mpirun's ranks.
std::vector<pid_t> children_of(pid_t parent) {
  std::vector<pid_t> found;
  for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
    const std::string name = entry.path().filename();
    if (name.find_first_not_of("0123456789") != std::string::npos) continue;
    std::ifstream stat(entry.path() / "stat");
    std::string line;
    std::getline(stat, line);
    const size_t after_name = line.rfind(')');
    if (after_name == std::string::npos) continue;
    std::istringstream fields(line.substr(after_name + 2));
    char state = 0;
    pid_t parent_of_it = 0;
    fields >> state >> parent_of_it;
    if (parent_of_it == parent && state != 'Z') found.push_back(std::stoi(name));
  }
  return found;
}

TEST_F(Train, AKilledRankEndsTheRunAndTheNextGoesOnAsIfNothingHadBeen) {
  const std::string plan_file = two_ranks_plan();
  // Each step saves a checkpoint and removes one.
  const std::string settings =
      folder_.write("kill.yaml", config_text(12, 0) + "checkpoints: {interval_steps: 1, keep: 2}\n");
  ASSERT_EQ(run_weft({"train", "--plan", plan_file, "--config", settings, "--run", run_folder("whole")}).exit_status,
            0);
  const std::vector<Json> whole = metrics("whole");
  const char* wanted = std::getenv("WEFT_KILLS");
  const int kills = wanted != nullptr ? std::stoi(wanted) : 3;
  std::mt19937 random(static_cast<unsigned>(::getpid()));
  int times_killed = 0;
  for (int i = 0; i < kills; ++i) {
    const std::string name = fmt::format("killed{}", i);
    const TemporaryFolder output;
    const StartedProgram run =
        start_command({source_tree().string() + "/scripts/mpirun", "-n", "2", build_tree() / "weft", "train", "--plan",
                       plan_file, "--config", settings, "--run", run_folder(name)},
                      output.path());
    // At a random moment after the first step.
    const path lines = path(run_folder(name)) / "metrics.jsonl";
    for (int waits = 0; waits < 6000 && (!std::filesystem::exists(lines) || text_of(lines).empty()); ++waits)
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    std::this_thread::sleep_for(std::chrono::microseconds(random() % 400'000));
    const std::vector<pid_t> ranks = children_of(run.process);
    if (!ranks.empty()) {
      ++times_killed;
      kill(ranks[random() % ranks.size()], SIGKILL);
    }
    const auto start = std::chrono::steady_clock::now();
    const ProgramRun ended = wait_for(run);
    EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(20)) << "a hang";
    if (!ranks.empty() && metrics(name).size() < 12) {
      EXPECT_NE(ended.exit_status, 0);
    }
    const ProgramRun rest =
        run_weft({"train", "--plan", plan_file, "--config", settings, "--run", run_folder(name), "--resume"});
    ASSERT_EQ(rest.exit_status, 0) << rest.err;
    const std::vector<Json> found = metrics(name);
    ASSERT_EQ(found.size(), whole.size());
    for (size_t step = 0; step < whole.size(); ++step)
      EXPECT_NEAR(found[step]["loss"].get<double>(), whole[step]["loss"].get<double>(), 1e-12) << step;
    const path last = "checkpoints/step-00000012";
    EXPECT_TRUE(std::filesystem::exists(run_folder(name) / last / "checkpoint.json"));
    std::filesystem::remove_all(run_folder(name));
  }
  EXPECT_GT(times_killed, 0);
}

// As srun and a host that is taken away do it: the signal goes to one rank or to all, not to the launcher.
TEST_F(Train, ProcessesThatAreAskedToEndSaveTheirStateAndEndWithStatus3) {
  const std::string plan_file = two_ranks_plan(), settings = config(100'000, 50'000);
  for (const bool asks_all : {true, false}) {
    const std::string name = asks_all ? "all" : "one";
    const TemporaryFolder output;
    const StartedProgram run =
        start_command({source_tree().string() + "/scripts/mpirun", "-n", "2", build_tree() / "weft", "train", "--plan",
                       plan_file, "--config", settings, "--run", run_folder(name)},
                      output.path());
    for (int waits = 0; waits < 6000 && metrics(name).size() < 2; ++waits)
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    const std::vector<pid_t> ranks = children_of(run.process);
    ASSERT_EQ(ranks.size(), 2u);
    for (const pid_t rank : ranks) {
      if (asks_all || rank == ranks.back()) kill(rank, SIGTERM);
    }
    const ProgramRun ended = wait_for(run);
    EXPECT_EQ(ended.exit_status, 3) << ended.err;
    const int64_t done = std::ssize(metrics(name));
    EXPECT_TRUE(says(ended.err, fmt::format("train: was interrupted after step {}", done)));
    EXPECT_TRUE(
        std::filesystem::exists(run_folder(name) + fmt::format("/checkpoints/step-{:08}/checkpoint.json", done)));
  }
}

// Every module its own settings, from the search to the run, and the same losses as one rank.
TEST_F(Train, PlansOfModulesWithTheirOwnSettingsRunAsTheyAre) {
  const std::string model = (kFixtures / "qwen2_5_omni").string();
  const std::string workload = std::string(kWorkload) +
                               "audio_clips_per_sample: {values: [0, 1, 2], weights: [0.3, 0.4, 0.3]}\n"
                               "audio_seconds_per_clip: {values: [0.1, 0.2], weights: [0.5, 0.5]}\n";
  const std::string inline_plan =
      plan("inline", 1,
           "mbs: 1\nllm: {tp: 1, pp: 1, cp: 1, dp: 1}\nvision: {placement: inline}\naudio: {placement: inline}\n",
           model, workload);
  const ProgramRun one =
      run_weft({"train", "--plan", inline_plan, "--config", config(3, 0), "--run", run_folder("one")});
  ASSERT_EQ(one.exit_status, 0) << one.err;
  const std::vector<Json> expected = metrics("one");
  ASSERT_EQ(expected.size(), 3u);
  const std::map<std::string, std::string> spaces = {
      {"colocated",
       "mbs: 1\nllm: {tp: 2, pp: 2, cp: 1, dp: 2}\nvision: {placement: colocated}\n"
       "audio: {placement: [colocated, partial]}\n"},
      {"disjoint",
       "mbs: 1\nllm: {tp: 2, pp: 2, cp: 1}\nvision: {placement: disjoint}\naudio: {placement: colocated}\n"},
      {"shared",
       "mbs: 2\nllm: {tp: 1, pp: 2, cp: 2, dp: 2}\nvision: {placement: colocated}\n"
       "audio: {placement: inline}\n"}};
  for (const auto& [name, space] : spaces) {
    SCOPED_TRACE(name);
    const std::string file = plan(name, 8, space, model, workload);
    const ProgramRun check = run_weft({"check", "--plan", file});
    EXPECT_EQ(check.exit_status, 0) << check.err;
    const ProgramRun simulation = run_weft({"simulate", "--plan", file, "--json"});
    EXPECT_EQ(simulation.exit_status, 0) << simulation.err;
    EXPECT_GT(Json::parse(simulation.out)["step_time_ms"].get<double>(), 0);
    // As it is, and with samples reassigned.
    for (const bool is_balanced : {false, true}) {
      const std::string run_name = name + (is_balanced ? "_balanced" : "");
      std::string used = file;
      if (is_balanced) {
        Json json = Json::parse(text_of(file));
        json["balance"] = "both";
        used = folder_.write(run_name + ".json", json.dump());
      }
      const ProgramRun run =
          run_weft({"train", "--plan", used, "--config", config(3, 0), "--run", run_folder(run_name)});
      ASSERT_EQ(run.exit_status, 0) << run.err;
      const std::vector<Json> lines = metrics(run_name);
      ASSERT_EQ(lines.size(), expected.size());
      for (size_t i = 0; i < lines.size(); ++i) {
        const double loss = expected[i]["loss"].get<double>();
        EXPECT_NEAR(lines[i]["loss"].get<double>(), loss, 1e-9 * loss) << "step " << i + 1;
      }
    }
  }
}

}  // namespace
}  // namespace weft::train_test
