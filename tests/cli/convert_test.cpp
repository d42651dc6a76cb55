// Folders that are turned into others.
#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <random>
#include <thread>

#include "tests/cli/training_runs.h"
#include "weft/weights/weight_folder.h"

namespace weft::train_test {
namespace {

class Convert : public TrainingRuns {
 protected:
  static std::string fixture() { return (source_tree() / "tests/parity/fixtures/qwen2_vl_tied").string(); }
  std::string fixture_plan() {
    return plan("fixture", 2, "mbs: 2\nllm: {tp: 2, pp: 1, cp: 1, dp: 1}\nvision: {placement: inline}\n", fixture());
  }
  static ProgramRun convert(const std::string& from, const std::string& to, const std::vector<std::string>& more = {}) {
    std::vector<std::string> words = {"convert", "--from", from, "--to", to};
    words.insert(words.end(), more.begin(), more.end());
    return run_weft(words);
  }
  /// Names, types, shapes and bytes.
  static void expect_same_weights(const std::string& found, const std::string& expected) {
    const auto a = WeightFolder::open(found), b = WeightFolder::open(expected);
    ASSERT_TRUE(a.ok()) << a.error().message();
    ASSERT_TRUE(b.ok()) << b.error().message();
    ASSERT_EQ(a->num_weights(), b->num_weights());
    for (const SafetensorsFile& file : b->files()) {
      for (const WeightEntry& entry : file.entries()) {
        const WeightEntry* other = a->find(entry.info.name);
        ASSERT_NE(other, nullptr) << entry.info.name;
        EXPECT_EQ(other->info, entry.info);
        EXPECT_TRUE(std::equal(other->bytes.begin(), other->bytes.end(), entry.bytes.begin(), entry.bytes.end()))
            << entry.info.name;
      }
    }
  }
};

TEST_F(Convert, WeightsAreTheSameAfterARoundTrip) {
  const std::string plan_file = fixture_plan();
  // What goes with the weights lies beside them.
  const std::string model = run_folder("model");
  std::filesystem::copy(fixture(), model, std::filesystem::copy_options::recursive);
  folder_.write("model/tokenizer.json", "{\"model\": {}}");
  folder_.write("model/chat_template.jinja", "{{ messages }}");
  folder_.write("model/generation_config.json", "{}");
  std::filesystem::create_directories(run_folder("model") + "/additional_chat_templates");
  folder_.write("model/additional_chat_templates/tools.jinja", "{{ tools }}");
  folder_.write("model/modeling_own.py", "print()");
  const ProgramRun there = convert(model, run_folder("checkpoint"), {"--plan", plan_file});
  ASSERT_EQ(there.exit_status, 0) << there.err;
  EXPECT_TRUE(says(there.out, "a checkpoint of step 0 for 2 ranks, without optimizer states"));
  const ProgramRun back = convert(run_folder("checkpoint"), run_folder("back"), {"--shard-size", "0.00001"});
  ASSERT_EQ(back.exit_status, 0) << back.err;
  EXPECT_TRUE(says(back.out, "additional_chat_templates/tools.jinja, chat_template.jinja, generation_config.json"));
  EXPECT_EQ(text_of(run_folder("back") + "/additional_chat_templates/tools.jinja"), "{{ tools }}");
  EXPECT_FALSE(std::filesystem::exists(run_folder("back") + "/modeling_own.py"));
  EXPECT_TRUE(says(back.err, "note: modeling_own.py in " + model + " is not copied: "));
  expect_same_weights(run_folder("back"), model);
  EXPECT_TRUE(std::filesystem::exists(run_folder("back") + "/model.safetensors.index.json")) << "several files";
  EXPECT_EQ(text_of(run_folder("back") + "/tokenizer.json"), "{\"model\": {}}");
  EXPECT_EQ(Json::parse(text_of(run_folder("back") + "/config.json"))["model_type"],
            Json::parse(text_of(model + "/config.json"))["model_type"]);
  const ProgramRun described = run_weft({"convert", "--describe", run_folder("checkpoint")});
  ASSERT_EQ(described.exit_status, 0) << described.err;
  EXPECT_TRUE(says(described.out, "model.norm.weight [36], no moments"));
  const Json listed = Json::parse(run_weft({"convert", "--describe", run_folder("checkpoint"), "--json"}).out);
  EXPECT_EQ(listed["world_size"].get<int64_t>(), 2);
  const bool has_norm = std::any_of(listed["weights"].begin(), listed["weights"].end(), [](const Json& weight) {
    return weight["name"] == "model.norm.weight" && weight["shape"] == Json({36});
  });
  EXPECT_TRUE(has_norm) << listed.dump(1);
}

// What a run wrote down leads to the same folder from everywhere.
TEST_F(Convert, TheTokenizerIsThatOfTheWeightsThatTheRunBeganWith) {
  namespace fs = std::filesystem;
  const std::string plan_file = fixture_plan();
  for (const char* place : {"own", "other"}) {
    fs::create_directories(run_folder(place));
    fs::copy(fixture(), run_folder(place) + "/hf", fs::copy_options::recursive);
    folder_.write(std::string(place) + "/hf/tokenizer.json", place);
  }
  const auto from_within = [&](const std::string& place, std::vector<std::string> words) {
    const TemporaryFolder output;
    words.insert(words.begin(), {"/usr/bin/env", "-C", run_folder(place), build_tree() / "weft"});
    return wait_for(start_command(words, output.path()));
  };
  const std::string settings = config(1, 1, "weights: hf\n");
  const ProgramRun trained =
      from_within("own", {"train", "--plan", plan_file, "--config", settings, "--run", run_folder("run")});
  ASSERT_EQ(trained.exit_status, 0) << trained.err;
  const ProgramRun made = from_within("other", {"convert", "--from", run_folder("run"), "--to", run_folder("made")});
  ASSERT_EQ(made.exit_status, 0) << made.err;
  EXPECT_EQ(text_of(run_folder("made") + "/tokenizer.json"), "own");
  // The same folder, called otherwise, is no change; another one is.
  const std::string longer = folder_.write("longer.yaml", config_text(2, 1, "weights: ../own/hf\n"));
  const ProgramRun gone_on =
      from_within("other", {"train", "--plan", plan_file, "--config", longer, "--resume", run_folder("run")});
  ASSERT_EQ(gone_on.exit_status, 0) << gone_on.err;
  EXPECT_FALSE(says(gone_on.err, "weights \"")) << gone_on.err;
  const std::string moved = folder_.write("moved.yaml", config_text(3, 1, "weights: hf/.\n"));
  const ProgramRun with_other =
      from_within("other", {"train", "--plan", plan_file, "--config", moved, "--resume", run_folder("run")});
  ASSERT_EQ(with_other.exit_status, 0) << with_other.err;
  EXPECT_TRUE(says(with_other.err, "weights \"" + run_folder("other") + "/hf\" instead of"));
  // Older versions wrote down what was given, and no one knows from where.
  const fs::path record = fs::path(run_folder("run")) / "checkpoints/step-00000001/checkpoint.json";
  Json old = Json::parse(text_of(record));
  old["run"]["weights"] = "hf";
  write_sealed(record, old);
  const ProgramRun unknown =
      from_within("other", {"convert", "--from", record.parent_path(), "--to", run_folder("unknown")});
  ASSERT_EQ(unknown.exit_status, 0) << unknown.err;
  EXPECT_TRUE(says(unknown.err, "note: the run began with 'hf', and its record does not say in which folder that is"));
  EXPECT_FALSE(fs::exists(run_folder("unknown") + "/tokenizer.json"));
  const ProgramRun set_back = from_within("own", {"train", "--plan", plan_file, "--config", settings, "--resume",
                                                  record.parent_path(), "--run", run_folder("set_back")});
  ASSERT_EQ(set_back.exit_status, 0) << set_back.err;
  EXPECT_FALSE(says(set_back.err, "weights \"")) << set_back.err;
}

TEST_F(Convert, WeightsWithoutStatesStayWithoutThem) {
  const std::string plan_file = fixture_plan();
  ASSERT_EQ(convert(fixture(), run_folder("bare"), {"--plan", plan_file}).exit_status, 0);
  const ProgramRun again = convert(run_folder("bare"), run_folder("again"), {"--plan", plan_file});
  ASSERT_EQ(again.exit_status, 0) << again.err;
  EXPECT_TRUE(says(again.out, "a checkpoint of step 0 for 2 ranks, without optimizer states"));
  EXPECT_TRUE(says(again.err, "note: the source has no optimizer states"));
  for (const char* file : {"rank-00000.safetensors", "rank-00001.safetensors"})
    EXPECT_TRUE(text_of(run_folder("again") + "/" + file) == text_of(run_folder("bare") + "/" + file)) << file;
}

// A run removes what looks left over among its checkpoints.
TEST_F(Convert, TheCheckpointsOfARunThatIsWritingAreLeftAlone) {
  const std::string plan_file = fixture_plan(), steps = run_folder("run") + "/checkpoints/";
  const TemporaryFolder output;
  const StartedProgram run = start_command({build_tree() / "weft", "train", "--plan", plan_file, "--config",
                                            config(1'000'000, 100'000), "--run", run_folder("run")},
                                           output.path());
  for (int waits = 0; waits < 6000 && metrics("run").empty(); ++waits)
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  const auto refused = [&](const std::string& to, const std::vector<std::string>& more, const std::string& what) {
    const ProgramRun made = convert(fixture(), to, more);
    EXPECT_EQ(made.exit_status, 2) << made.err;
    EXPECT_TRUE(says(made.err, what));
    EXPECT_FALSE(std::filesystem::exists(to));
  };
  for (const std::string& to : {steps + "step-00900000", steps + "deeper/model/"})
    refused(to, {"--plan", plan_file}, run_folder("run") + ": is being written by another run (process ");
  refused(steps + "hf", {}, "Give a folder outside of that run's checkpoints");
  kill(run.process, SIGKILL);
  wait_for(run);
  refused(steps + "step-00900000", {}, "--to: is 'step-00900000' in a run's folder of checkpoints, but a Hugging Face");
  refused(steps + "step-00900000", {"--plan", plan_file}, "but what is converted is of step 0. Name it step-00000000");
  const ProgramRun made = convert(fixture(), steps + "step-00000000", {"--plan", plan_file});
  EXPECT_EQ(made.exit_status, 0) << made.err;
}

TEST_F(Convert, ACheckpointOfAnotherPlanGoesOnAsItsRun) {
  const std::string two = two_ranks_plan();
  const std::string four =
      plan("four", 4, "mbs: 1\nllm: {tp: 2, pp: 1, cp: 1, dp: 2}\nvision: {placement: colocated}\n");
  ASSERT_EQ(run_weft({"train", "--plan", two, "--config", config(6, 3), "--run", run_folder("whole")}).exit_status, 0);
  ASSERT_EQ(run_weft({"train", "--plan", two, "--config", config(3, 3), "--run", run_folder("run")}).exit_status, 0);
  const ProgramRun made = convert(run_folder("run"), run_folder("other"), {"--plan", four});
  ASSERT_EQ(made.exit_status, 0) << made.err;
  const ProgramRun rest = run_weft({"train", "--plan", four, "--config", config(5, 3), "--resume", run_folder("other"),
                                    "--run", run_folder("rest")});
  ASSERT_EQ(rest.exit_status, 0) << rest.err;
  const std::vector<Json> whole = metrics("whole"), found = metrics("rest");
  ASSERT_EQ(found.size(), 2u);
  for (size_t i = 0; i < 2; ++i) {
    const double expected = whole[i + 3]["loss"];
    EXPECT_NEAR(found[i]["loss"].get<double>(), expected, 1e-9 * expected);
  }
  // Weights of both are those of one model.
  ASSERT_EQ(convert(run_folder("run"), run_folder("a"), {"--dtype", "fp64"}).exit_status, 0);
  ASSERT_EQ(convert(run_folder("other"), run_folder("b"), {"--dtype", "fp64"}).exit_status, 0);
  expect_same_weights(run_folder("b"), run_folder("a"));
  const ProgramRun bare = convert(run_folder("run"), run_folder("bare"), {"--plan", four, "--weights-only"});
  ASSERT_EQ(bare.exit_status, 0) << bare.err;
  EXPECT_TRUE(says(run_weft({"convert", "--describe", run_folder("bare")}).out, "no moments"));
}

TEST_F(Convert, BadInputIsNamedAndNothingIsOverwritten) {
  const std::string plan_file = two_ranks_plan();
  const auto refused = [&](const ProgramRun& run, const std::string& what) {
    EXPECT_EQ(run.exit_status, 2) << run.err;
    EXPECT_TRUE(says(run.err, what));
  };
  folder_.write("there", "something");
  refused(convert(fixture(), run_folder("there")), "is there already, and not an empty folder");
  EXPECT_EQ(text_of(run_folder("there")), "something");
  refused(convert(run_folder("nowhere"), run_folder("new")), "does not exist");
  std::filesystem::create_directories(run_folder("empty"));
  refused(convert(run_folder("empty"), run_folder("new")), "holds neither a run's checkpoints");
  refused(convert(fixture(), run_folder("new"), {"--plan", plan_file}), "is of another model than the plan's tiny-vl");
  refused(convert(fixture(), run_folder("new"), {"--dtype", "int8"}), "--dtype: is 'int8'");
  refused(convert(fixture(), run_folder("new"), {"--weights-only"}), "--weights-only: is about checkpoints");
  refused(run_weft({"convert", "--from", fixture()}), "--to: is missing");
  refused(convert(fixture(), ""), "--to: is empty, a folder is needed");
  refused(convert("", run_folder("new")), "--from: is empty, a folder is needed");
  refused(convert(fixture(), run_folder("new"), {"--plan", plan_file, "--shard-size", "1"}),
          "--shard-size: is about the files of a Hugging Face folder, but with --plan a checkpoint is written");
  refused(convert(fixture(), run_folder("new"), {"--adapter", "--shard-size", "1"}),
          "--shard-size: is about the files");
  refused(run_weft({"convert", "--describe", fixture(), "--dtype", "bf16"}), "--describe: is given together with");
  EXPECT_FALSE(std::filesystem::exists(run_folder("new")));
}

TEST_F(Convert, DamageIsNamedWithTheStepThatIsStillGood) {
  ASSERT_EQ(
      run_weft({"train", "--plan", two_ranks_plan(), "--config", config(2, 1), "--run", run_folder("run")}).exit_status,
      0);
  const std::string steps = run_folder("run") + "/checkpoints/", shard = steps + "step-00000002/rank-00001.safetensors";
  std::string bytes = text_of(shard);
  bytes[bytes.size() / 2] = static_cast<char>(bytes[bytes.size() / 2] ^ 1);
  std::ofstream(shard, std::ios::binary) << bytes;
  const ProgramRun refused = convert(run_folder("run"), run_folder("model"));
  EXPECT_EQ(refused.exit_status, 2) << refused.err;
  EXPECT_TRUE(says(refused.err, "rank-00001.safetensors: "));
  EXPECT_TRUE(says(refused.err, "step-00000001 is good: give it with --from " + steps + "step-00000001"));
  EXPECT_FALSE(std::filesystem::exists(run_folder("model")));
  const ProgramRun evaluated = run_weft({"eval", "--checkpoint", run_folder("run")});
  EXPECT_EQ(evaluated.exit_status, 2) << evaluated.err;
  EXPECT_TRUE(says(evaluated.err, "step-00000001 is good: give it with --checkpoint " + steps + "step-00000001"));
  const ProgramRun other = convert(steps + "step-00000001", run_folder("model"));
  EXPECT_EQ(other.exit_status, 0) << other.err;
}

// Of two that write the same folder one does, and its result is whole and its own.
TEST_F(Convert, OfTwoAtOnceOneIsRefused) {
  const TemporaryFolder first, second;
  const std::string other = (source_tree() / "tests/parity/fixtures/llama_tied").string(), to = run_folder("to");
  const auto start = [&](const std::string& from, const TemporaryFolder& output) {
    return start_command({build_tree() / "weft", "convert", "--from", from, "--to", to}, output.path());
  };
  const StartedProgram programs[] = {start(fixture(), first), start(other, second)};
  const ProgramRun runs[] = {wait_for(programs[0]), wait_for(programs[1])};
  EXPECT_EQ(runs[0].exit_status + runs[1].exit_status, 2) << runs[0].err << runs[1].err;
  expect_same_weights(to, runs[0].exit_status == 0 ? fixture() : other);
  const std::string told = runs[0].err + runs[1].err;
  EXPECT_TRUE(told.find("is being written by another process") != std::string::npos ||
              told.find("is there already, and not an empty folder") != std::string::npos)
      << told;
}

// Whole or not there, whenever it is killed: a Hugging Face folder, and every other time a checkpoint of two ranks.
TEST_F(Convert, AKilledConversionLeavesNothingThatLooksWhole) {
  const char* wanted = std::getenv("WEFT_KILLS");
  const int kills = wanted != nullptr ? std::stoi(wanted) : 4;
  std::mt19937 random(static_cast<unsigned>(::getpid()));
  const std::string plan_file = fixture_plan();
  int num_cut_off = 0;
  for (int i = 0; i < kills && !HasFailure(); ++i) {
    const TemporaryFolder output;
    const std::string to = run_folder(fmt::format("to{}", i)), hidden = run_folder(fmt::format(".saving-to{}", i));
    const bool is_checkpoint = i % 2 == 1;
    const std::vector<std::string> options = is_checkpoint ? std::vector<std::string>{"--plan", plan_file}
                                                           : std::vector<std::string>{"--shard-size", "0.00001"};
    std::vector<std::string> words = {build_tree() / "weft", "convert", "--from", fixture(), "--to", to};
    words.insert(words.end(), options.begin(), options.end());
    const StartedProgram program = start_command(words, output.path());
    // Mostly while it writes, which takes it a few milliseconds.
    const auto is_seen = [&] { return std::filesystem::exists(hidden) || std::filesystem::exists(to); };
    if (i % 8 >= 6) {
      std::this_thread::sleep_for(std::chrono::microseconds(random() % 1'200'000));
    } else {
      for (int waits = 0; waits < 100'000 && !is_seen(); ++waits)
        std::this_thread::sleep_for(std::chrono::microseconds(100));
      std::this_thread::sleep_for(std::chrono::microseconds(random() % 30'000));
    }
    kill(program.process, SIGKILL);
    wait_for(program);
    num_cut_off += std::filesystem::exists(hidden) ? 1 : 0;
    if (!std::filesystem::exists(to)) {
      EXPECT_EQ(convert(fixture(), to, options).exit_status, 0) << "what was left is in nobody's way";
      EXPECT_FALSE(std::filesystem::exists(hidden)) << "and goes";
    }
    if (is_checkpoint) {
      const ProgramRun verified = run_weft({"convert", "--describe", to, "--verify"});
      EXPECT_EQ(verified.exit_status, 0) << verified.err;
      EXPECT_TRUE(says(verified.out, "verified    every byte is as it was written"));
      EXPECT_EQ(convert(to, to + "-back").exit_status, 0);
      expect_same_weights(to + "-back", fixture());
      std::filesystem::remove_all(to + "-back");
    } else {
      expect_same_weights(to, fixture());
      EXPECT_TRUE(std::filesystem::exists(to + "/config.json"));
    }
    std::filesystem::remove_all(to);
  }
  RecordProperty("cut_off", num_cut_off);
  if (wanted != nullptr) fmt::print("{} of {} conversions were cut off while they wrote\n", num_cut_off, kills);
}

}  // namespace
}  // namespace weft::train_test
