#include <gtest/gtest.h>

#include "tests/cli/training_runs.h"
#include "tests/support/loader/conversation_files.h"

namespace weft {
namespace {

using train_test::TrainingRuns;

constexpr const char* kSamples = R"(global_batch_samples: 8
text_tokens: 40
images_per_sample: 1
patches_per_image: 16
audio_clips_per_sample: 1
audio_seconds_per_clip: 0.5
precision: fp64
)";

/// Conversations with pictures, videos and sound, some of them broken, by ranks that are processes: each prepares its
/// own part of what it takes in.
class ConversationProcesses : public TrainingRuns {
 protected:
  std::string plan_of(const std::string& name, int devices, const std::string& space) {
    return plan(name, devices, space + "schedule: [1f1b]\n", (files_.folder() / "model").string(), kSamples);
  }
  std::string settings(const std::string& data) {
    return config(4, 2,
                  fmt::format("data_threads: 2\ndata: {{model: {0}/model, sets: [{{file: {0}/chats.jsonl}}], "
                              "held_out_share: 0.2, max_broken_share: 0.5{1}}}\n",
                              files_.folder().string(), data));
  }
  void expect_same(const std::string& name, const std::string& expected) const {
    const std::vector<Json> found = metrics(name), wanted = metrics(expected);
    ASSERT_EQ(found.size(), 4u) << name;
    ASSERT_EQ(wanted.size(), 4u);
    for (size_t i = 0; i < 4; ++i) {
      for (const char* key : {"loss", "gradient_norm"}) {
        const double value = wanted[i][key].get<double>();
        EXPECT_NEAR(found[i][key].get<double>(), value, 1e-9 * value) << name << ", step " << i + 1 << ", " << key;
      }
      EXPECT_EQ(found[i]["tokens"], wanted[i]["tokens"]) << name;
    }
    EXPECT_EQ(train_test::text_of(folder_.path() / name / "skipped.jsonl"),
              train_test::text_of(folder_.path() / expected / "skipped.jsonl"))
        << name;
  }

  ConversationFiles files_;
};

TEST_F(ConversationProcesses, TrainTheSameAsOneRankPackedOrNot) {
  files_.write_records(120, 4);
  const std::string media = "vision: {placement: inline}\naudio: {placement: inline}\n";
  const std::string one = plan_of("one", 1, "mbs: 1\nllm: {tp: 1, pp: 1, cp: 1, dp: 1}\n" + media);
  const std::vector<std::pair<std::string, int>> plans = {
      {plan_of("cp", 2, "mbs: 1\nllm: {tp: 1, pp: 1, cp: 2, dp: 1}\n" + media), 2},
      {plan_of("beside", 2,
               "mbs: 1\nllm: {tp: 2, pp: 1, cp: 1, dp: 1}\nvision: {placement: colocated}\n"
               "audio: {placement: inline}\n"),
       2},
      {plan_of("four", 4, "mbs: 2\nllm: {tp: 1, pp: 2, cp: 2, dp: 1}\n" + media), 4}};
  for (const std::string data : {"", ", pack: true, cutoff_tokens: 160"}) {
    const std::string config = settings(data), kind = data.empty() ? "plain" : "packed";
    const ProgramRun alone = run_weft({"train", "--plan", one, "--config", config, "--run", run_folder(kind)});
    ASSERT_EQ(alone.exit_status, 0) << alone.err;
    EXPECT_TRUE(train_test::says(train_test::text_of(folder_.path() / kind / "skipped.jsonl"), "cut.jpg"))
        << "only ranks that decode a picture know of it";
    for (size_t i = 0; i < plans.size(); ++i) {
      const auto& [plan, processes] = plans[i];
      const std::string name = fmt::format("{}{}", kind, i);
      const ProgramRun run =
          run_weft_with_mpi(processes, {"train", "--plan", plan, "--config", config, "--run", run_folder(name)});
      ASSERT_EQ(run.exit_status, 0) << run.err;
      expect_same(name, kind);
    }
    // What processes began one rank ends.
    std::filesystem::remove_all(run_folder(kind + "0") + "/checkpoints/step-00000004");
    const ProgramRun rest =
        run_weft({"train", "--plan", one, "--config", config, "--run", run_folder(kind + "0"), "--resume"});
    ASSERT_EQ(rest.exit_status, 0) << rest.err;
    expect_same(kind + "0", kind);
  }
}

}  // namespace
}  // namespace weft
