// Runs that go on by other plans, in folders that others want, too, and from checkpoints that were damaged.
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <memory>
#include <random>
#include <set>
#include <thread>

#include "tests/cli/training_runs.h"

namespace weft::train_test {
namespace {

using std::filesystem::path;

class ResumeVerb : public TrainingRuns {
 protected:
  std::string one_rank_plan(const std::string& workload = kWorkload, const std::string& name = "one") {
    return plan(name, 1, "mbs: 4\nllm: {tp: 1, pp: 1, cp: 1, dp: 1}\nvision: {placement: inline}\n", "tiny-vl",
                workload);
  }
  std::string colocated_plan() {
    return plan("colocated", 4, "mbs: 1\nllm: {tp: 2, pp: 1, cp: 1, dp: 2}\nvision: {placement: colocated}\n");
  }
  ProgramRun train(const std::string& plan_file, const std::string& settings, const std::string& run,
                   const std::vector<std::string>& more = {}) {
    std::vector<std::string> words = {"train", "--plan", plan_file, "--config", settings, "--run", run_folder(run)};
    words.insert(words.end(), more.begin(), more.end());
    return run_weft(words);
  }
  void expect_losses(const std::string& name, const std::string& expected_name) const {
    const std::vector<Json> found = metrics(name), expected = metrics(expected_name);
    ASSERT_EQ(found.size(), expected.size());
    for (size_t i = 0; i < found.size(); ++i) {
      for (const char* key : {"loss", "gradient_norm", "learning_rate"}) {
        const double is = found[i][key], should = expected[i][key];
        EXPECT_NEAR(is, should, 1e-9 * std::abs(should)) << key << " of step " << i + 1;
      }
    }
  }
};

// From threads to others, to processes and back to one rank.
TEST_F(ResumeVerb, GoesOnByAnyPlanOnAnyRanks) {
  const std::string two = two_ranks_plan(), four = colocated_plan(), one = one_rank_plan();
  ASSERT_EQ(train(one, config(9, 9), "whole").exit_status, 0);
  ASSERT_EQ(train(two, config(3, 3), "run").exit_status, 0);
  const ProgramRun second = train(four, config(5, 3), "run", {"--resume"});
  ASSERT_EQ(second.exit_status, 0) << second.err;
  EXPECT_TRUE(says(second.err, "from here on with "));
  EXPECT_TRUE(says(second.err, "world_size 4 instead of 2"));
  EXPECT_TRUE(says(second.err, "modules.llm.tp 2 instead of 1"));
  EXPECT_FALSE(says(second.err, "is not compared")) << "steps are held against the plan that they are by";
  const ProgramRun validated = run_weft({"validate", "--run", run_folder("run")});
  EXPECT_EQ(validated.exit_status, 0) << validated.err;
  EXPECT_TRUE(says(validated.out, "left out: 3 recorded steps by other plans that the run followed before"));
  const ProgramRun third =
      run_weft_with_mpi(2, {"train", "--plan", two, "--config", config(6, 2), "--resume", run_folder("run")});
  ASSERT_EQ(third.exit_status, 0) << third.err;
  const ProgramRun last = train(one, config(9, 3), "run", {"--resume"});
  ASSERT_EQ(last.exit_status, 0) << last.err;
  expect_losses("run", "whole");
}

TEST_F(ResumeVerb, AnotherBatchGoesOnWithTheNextSampleAndByItsLearningRate) {
  std::string large(kWorkload);
  large.replace(large.find("samples: 8"), 10, "samples: 16");
  const std::string one = one_rank_plan(), sixteen = one_rank_plan(large, "sixteen");
  const std::string linear =
      "steps: {}\nseed: 7\nthreads_per_rank: 1\noptimizer: {{learning_rate: 3.0e-3}}\ncheckpoints: {{interval_steps: "
      "4}}\n"
      "learning_rate_schedule: {{kind: linear, warmup_steps: 2}}\n";
  const auto settings = [&](int64_t steps) {
    return folder_.write("linear.yaml", fmt::format(fmt::runtime(linear), steps));
  };
  ASSERT_EQ(train(one, settings(8), "whole").exit_status, 0);
  // The first four of eight steps, as if it had been stopped: the schedule's end is that of eight.
  ASSERT_EQ(train(one, settings(8), "run").exit_status, 0);
  std::filesystem::remove_all(run_folder("run") + "/checkpoints/step-00000008");
  const ProgramRun rest = train(sixteen, settings(6), "run", {"--resume"});
  ASSERT_EQ(rest.exit_status, 0) << rest.err;
  EXPECT_TRUE(says(rest.err, "16 samples a step instead of 8, the learning rate by samples seen"));
  const std::vector<Json> whole = metrics("whole"), found = metrics("run");
  ASSERT_EQ(found.size(), 6u);
  // Steps 5 and 6 begin where steps 5 and 7 did, after 32 and 48 of 64 samples; the end is that of the last step.
  EXPECT_EQ(found[4]["tokens"].get<int64_t>(), whole[4]["tokens"].get<int64_t>() + whole[5]["tokens"].get<int64_t>());
  EXPECT_EQ(found[5]["tokens"].get<int64_t>(), whole[6]["tokens"].get<int64_t>() + whole[7]["tokens"].get<int64_t>());
  // In steps of 16: a warm-up of 1, 4 in all, so that the third and the fourth are at 1/2 and at the end.
  EXPECT_NEAR(found[4]["learning_rate"].get<double>(), 3e-3 * (0.1 + 0.9 * 0.5), 1e-12);
  EXPECT_NEAR(found[5]["learning_rate"].get<double>(), 3e-3 * 0.1, 1e-12);
}

TEST_F(ResumeVerb, AnotherModelIsNamedByItsFields) {
  const std::string space = "mbs: 4\nllm: {tp: 1, pp: 1, cp: 1, dp: 1}\nvision: {placement: inline}\n";
  Json model = Json::parse(text_of(source_tree() / "scenarios/models/tiny-vl.json"));
  ASSERT_EQ(train(one_rank_plan(), config(1, 1), "run").exit_status, 0);
  // Says nothing of what is computed.
  model["transformers_version"] = "9.9";
  model["use_cache"] = !model.value("use_cache", false);
  const std::string same = plan("same", 1, space, folder_.write("tiny-vl.json", model.dump()));
  const ProgramRun next = train(same, config(2, 1), "run", {"--resume"});
  EXPECT_EQ(next.exit_status, 0) << next.err;
  model["text_config"]["rms_norm_eps"] = 0.125;
  const std::string other = plan("other", 1, space, folder_.write("tiny-vl.json", model.dump()));
  const std::string told = refusal({"--plan", other, "--config", config(3, 1), "--resume", run_folder("run")});
  EXPECT_TRUE(says(told, "step-00000002 is of another configuration of it"));
  EXPECT_TRUE(says(told, "text_config.rms_norm_eps: "));
  EXPECT_TRUE(says(told, " there, 0.125 in the plan"));
  const ProgramRun refused =
      run_weft({"convert", "--from", run_folder("run"), "--to", run_folder("new"), "--plan", other});
  EXPECT_EQ(refused.exit_status, 2);
  EXPECT_TRUE(says(refused.err, "text_config.rms_norm_eps: "));
  EXPECT_FALSE(std::filesystem::exists(run_folder("new")));
}

// The same model with adapters and without: told with the way from one to the other.
TEST_F(ResumeVerb, AdaptersThatCameOrWentAreToldWithTheWay) {
  const std::string one = one_rank_plan();
  const std::string adapted = run_folder("adapted.json");
  const ProgramRun planned =
      run_weft({"plan", "--model", "tiny-vl", "--cluster", run_folder("cluster.yaml"), "--workload",
                run_folder("workload.yaml"), "--space", run_folder("one.yaml"), "--adapters",
                folder_.write("adapters.yaml", "rank: 4\ntargets: [q_proj]\n"), "--out", adapted});
  ASSERT_EQ(planned.exit_status, 0) << planned.err;
  ASSERT_EQ(train(one, config(1, 1), "full").exit_status, 0);
  ASSERT_EQ(train(adapted, config(1, 1), "tuned").exit_status, 0);
  const auto told = [&](const std::string& plan_file, const std::string& name) {
    return refusal({"--plan", plan_file, "--config", config(2, 1), "--resume", run_folder(name)});
  };
  EXPECT_TRUE(says(told(adapted, "full"), "To train adapters on these weights, make a Hugging Face folder with"));
  EXPECT_TRUE(says(told(one, "tuned"), "Use a plan with these adapters. To train all of the weights, make a"));
  const ProgramRun described = run_weft({"convert", "--describe", run_folder("tuned")});
  EXPECT_EQ(described.exit_status, 0) << described.err;
  EXPECT_TRUE(says(described.out, "model.layers.0.self_attn.q_proj.lora_A.weight [4, 128], moments of 1 update"));
  EXPECT_TRUE(says(described.out, "model.layers.0.self_attn.q_proj.weight [128, 128], no moments"));
  ASSERT_EQ(run_weft({"convert", "--from", run_folder("tuned"), "--to", run_folder("peft"), "--adapter"}).exit_status,
            0);
  const ProgramRun twice =
      run_weft({"convert", "--from", run_folder("tuned"), "--to", run_folder("peft"), "--adapter", "--dtype", "fp16"});
  EXPECT_EQ(twice.exit_status, 2);
  EXPECT_TRUE(says(twice.err, "is there already, and not an empty folder"));
  EXPECT_FALSE(says(text_of(run_folder("peft") + "/adapter_model.safetensors"), "\"F16\""));
  ASSERT_EQ(
      run_weft({"convert", "--from", run_folder("tuned"), "--to", run_folder("half"), "--adapter", "--dtype", "fp16"})
          .exit_status,
      0);
  EXPECT_TRUE(says(text_of(run_folder("half") + "/adapter_model.safetensors").substr(0, 4096), "\"F16\""));
  const ProgramRun alone = run_weft({"convert", "--from", run_folder("peft"), "--to", run_folder("new")});
  EXPECT_EQ(alone.exit_status, 2);
  EXPECT_TRUE(says(alone.err, "holds adapters alone, without the weights of their model"));
}

TEST_F(ResumeVerb, AModelsFolderIsNoRun) {
  const std::string model = (source_tree() / "tests/parity/fixtures/qwen2_vl_tied").string();
  EXPECT_TRUE(says(refusal({"--plan", one_rank_plan(), "--config", config(2, 1), "--resume", model}),
                   model + ": is a Hugging Face folder, not a run"));
}

// A plan that divides a batch to more ranks than it has samples, as someone may write it by hand.
TEST_F(ResumeVerb, MoreRanksThanSamplesAreNamed) {
  const std::string two = plan("two", 2, "mbs: 1\nllm: {tp: 1, pp: 1, cp: 1, dp: 2}\nvision: {placement: inline}\n");
  ASSERT_EQ(train(two, config(1, 1), "run").exit_status, 0);
  Json forged = Json::parse(text_of(two));
  forged["workload"]["spec"]["global_batch_samples"] = 1;
  const std::string small = folder_.write("small.json", forged.dump());
  const auto refused = [&](const std::vector<std::string>& words) {
    const ProgramRun run = run_weft(words);
    EXPECT_EQ(run.exit_status, 2) << run.err;
    return run.err;
  };
  const std::vector<std::string> resumes = {"train",    "--plan",          small,   "--config",       config(2, 1),
                                            "--resume", run_folder("run"), "--run", run_folder("new")};
  const std::vector<std::string> converts = {"convert", "--from", run_folder("run"), "--to", run_folder("new"),
                                             "--plan",  small};
  const std::string changed = refused(resumes), before = "but the spec below it has ";
  ASSERT_TRUE(says(changed, before));
  forged["workload"]["hash"] = changed.substr(changed.find(before) + before.size(), 16);
  folder_.write("small.json", forged.dump());
  for (const auto& words : {resumes, converts})
    EXPECT_TRUE(
        says(refused(words), "the global batch is 1; the other factors alone make 2: make one of them smaller"));
  EXPECT_FALSE(std::filesystem::exists(run_folder("new")));
  EXPECT_EQ(metrics("run").size(), 1u);
}

TEST_F(ResumeVerb, SaysWhatWillNotBeSaved) {
  const std::string two = two_ranks_plan();
  ASSERT_EQ(train(two, config(2, 2), "run").exit_status, 0);
  const ProgramRun rest = train(two, config(4, 0), "run", {"--resume"});
  ASSERT_EQ(rest.exit_status, 0) << rest.err;
  EXPECT_TRUE(says(rest.err, "no checkpoints, which was {\"interval_steps\":2,\"keep\":0}"));
  EXPECT_TRUE(says(rest.err, "steps 3 to 4 are not saved, since the configuration has no checkpoints"));
}

TEST_F(ResumeVerb, RunsThatStartTogetherHaveFoldersOfTheirOwn) {
  const std::string one = one_rank_plan();
  const std::string settings = config(3, 1);
  const path before = std::filesystem::current_path();
  std::filesystem::current_path(folder_.path());
  constexpr int kRuns = 4;
  std::vector<StartedProgram> programs;
  std::vector<std::unique_ptr<TemporaryFolder>> outputs;
  for (int i = 0; i < kRuns; ++i) {
    outputs.push_back(std::make_unique<TemporaryFolder>());
    programs.push_back(
        start_command({build_tree() / "weft", "train", "--plan", one, "--config", settings}, outputs.back()->path()));
  }
  for (const StartedProgram& program : programs) {
    const ProgramRun run = wait_for(program);
    EXPECT_EQ(run.exit_status, 0) << run.err;
  }
  std::filesystem::current_path(before);
  std::set<std::string> folders;
  for (const auto& entry : std::filesystem::directory_iterator(folder_.path() / "runs")) {
    folders.insert(entry.path().filename());
    EXPECT_EQ(metrics("runs/" + entry.path().filename().string()).size(), 3u);
    EXPECT_TRUE(std::filesystem::exists(entry.path() / "checkpoints/step-00000003/checkpoint.json"));
  }
  EXPECT_EQ(folders.size(), static_cast<size_t>(kRuns));
}

TEST_F(ResumeVerb, AFolderInWhichARunWritesIsRefused) {
  const std::string one = one_rank_plan();
  const TemporaryFolder output;
  const StartedProgram running = start_command(
      {build_tree() / "weft", "train", "--plan", one, "--config", config(100'000, 1000), "--run", run_folder("run")},
      output.path());
  for (int waits = 0; waits < 6000 && metrics("run").empty(); ++waits)
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  const std::string told = refusal({"--plan", one, "--config", config(9, 3), "--resume", run_folder("run")});
  EXPECT_TRUE(says(told, fmt::format("is being written by another run (process {} on ", running.process)));
  kill(running.process, SIGKILL);
  wait_for(running);
  // A dead run holds nothing.
  const ProgramRun next = train(one, config(2, 1), "run", {"--resume"});
  EXPECT_EQ(next.exit_status, 0) << next.err;
}

// As on two hosts: the same name is another folder for the second rank.
TEST_F(ResumeVerb, RanksThatDoNotShareAFolderAreToldBeforeTheFirstStep) {
  const std::string two = two_ranks_plan();
  for (const char* host : {"a", "b"}) std::filesystem::create_directory(folder_.path() / host);
  const auto on_hosts = [&](const std::string& settings) {
    std::vector<std::string> words = {source_tree().string() + "/scripts/mpirun"};
    for (const char* host : {"a", "b"}) {
      if (words.size() > 1) words.emplace_back(":");
      for (const std::string& word :
           {std::string("-n"), std::string("1"), std::string("--wdir"), (folder_.path() / host).string(),
            (build_tree() / "weft").string(), std::string("train"), std::string("--plan"), two, std::string("--config"),
            settings, std::string("--run"), std::string("run")})
        words.push_back(word);
    }
    const TemporaryFolder output;
    return wait_for(start_command(std::move(words), output.path()));
  };
  const ProgramRun refused = on_hosts(config(2, 1));
  EXPECT_EQ(refused.exit_status, 2) << refused.err;
  EXPECT_TRUE(says(refused.err, "run: is not on a file system that all ranks share: rank 1 does not see what rank 0"));
  EXPECT_FALSE(std::filesystem::exists(folder_.path() / "a/run")) << "a run that did not begin leaves nothing";
  // Without checkpoints only rank 0 writes, and a shared file system is not needed.
  const ProgramRun bare = on_hosts(config(2, 0));
  EXPECT_EQ(bare.exit_status, 0) << bare.err;
  EXPECT_EQ(metrics("a/run").size(), 2u);
}

TEST_F(ResumeVerb, DamageIsNamedWithTheStepThatIsStillGood) {
  const std::string two = two_ranks_plan();
  ASSERT_EQ(train(two, config(3, 1), "run").exit_status, 0);
  const std::string newest = run_folder("run") + "/checkpoints/step-00000003/";
  const std::string shard = newest + "rank-00001.safetensors";
  const std::string good = text_of(shard);
  const auto damage = [&](const std::string& file, const std::string& bytes) {
    std::ofstream(file, std::ios::binary) << bytes;
    const std::string told = refusal({"--plan", two, "--config", config(4, 1), "--resume", run_folder("run")});
    EXPECT_TRUE(says(told, "step-00000002 is good: go on from it with --resume "));
    return told;
  };
  std::string bad = good;
  bad[bad.size() - 5] = static_cast<char>(bad[bad.size() - 5] ^ 4);
  EXPECT_TRUE(says(damage(shard, bad), "rank-00001.safetensors: "));
  EXPECT_TRUE(says(damage(shard, bad), "have the CRC-32C"));
  EXPECT_TRUE(says(damage(shard, good.substr(0, 1000)), "has 1,000 bytes, but"));
  std::filesystem::remove(shard);
  EXPECT_TRUE(says(refusal({"--plan", two, "--config", config(4, 1), "--resume", run_folder("run")}),
                   "cannot be read, and checkpoint.json names it"));
  std::ofstream(shard, std::ios::binary) << good;
  const std::string json = text_of(newest + "checkpoint.json");
  damage(newest + "checkpoint.json", json.substr(0, json.size() / 2));
  std::filesystem::remove(newest + "checkpoint.json");
  EXPECT_TRUE(
      says(refusal({"--plan", two, "--config", config(4, 1), "--resume", run_folder("run")}), "step-00000002 is good"));
  // As it says.
  const ProgramRun other =
      train(two, config(4, 1), "other", {"--resume", run_folder("run") + "/checkpoints/step-00000002"});
  EXPECT_EQ(other.exit_status, 0) << other.err;
}

// At any moment, also while a checkpoint is written beside a step or an older one is removed.
TEST_F(ResumeVerb, AKilledRunOfThreadsGoesOnAsIfNothingHadBeen) {
  const std::string two = two_ranks_plan();
  const std::string settings =
      folder_.write("kill.yaml", config_text(12, 0) + "checkpoints: {interval_steps: 1, keep: 2}\n");
  ASSERT_EQ(train(two, settings, "whole").exit_status, 0);
  const char* wanted = std::getenv("WEFT_KILLS");
  const int kills = wanted != nullptr ? std::stoi(wanted) : 3;
  std::mt19937 random(static_cast<unsigned>(::getpid()));
  for (int i = 0; i < kills && !HasFailure(); ++i) {
    const std::string name = fmt::format("killed{}", i);
    const TemporaryFolder output;
    const StartedProgram run =
        start_command({build_tree() / "weft", "train", "--plan", two, "--config", settings, "--run", run_folder(name)},
                      output.path());
    for (int waits = 0; waits < 6000 && metrics(name).empty(); ++waits)
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    std::this_thread::sleep_for(std::chrono::microseconds(random() % 200'000));
    kill(run.process, SIGKILL);
    wait_for(run);
    const ProgramRun rest = train(two, settings, name, {"--resume"});
    ASSERT_EQ(rest.exit_status, 0) << rest.err;
    expect_losses(name, "whole");
    std::filesystem::remove_all(run_folder(name));
  }
}

// As on a disk that is full: no file may grow beyond a size.
TEST_F(ResumeVerb, ADiskThatIsFullEndsTheRunAndHarmsNothing) {
  const std::string two = two_ranks_plan();
  ASSERT_EQ(train(two, config(2, 2), "run").exit_status, 0);
  const std::string command =
      fmt::format("trap '' XFSZ; ulimit -f 64; exec '{}' train --plan '{}' --config '{}' --resume '{}'",
                  (build_tree() / "weft").string(), two, config(6, 2), run_folder("run"));
  const TemporaryFolder output;
  const ProgramRun full = wait_for(start_command({"/bin/bash", "-c", command}, output.path()));
  EXPECT_EQ(full.exit_status, 1) << full.err;
  EXPECT_TRUE(says(full.err, ".safetensors: cannot be written: File too large"));
  const ProgramRun rest = train(two, config(6, 2), "run", {"--resume"});
  ASSERT_EQ(rest.exit_status, 0) << rest.err;
  EXPECT_TRUE(says(rest.err, "going on from " + run_folder("run") + "/checkpoints/step-00000002"));
}

}  // namespace
}  // namespace weft::train_test
