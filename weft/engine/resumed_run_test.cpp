#include "weft/engine/resumed_run.h"

#include <gtest/gtest.h>

#include "tests/support/checkpoint/example_run.h"
#include "tests/support/weights/example_files.h"
#include "weft/engine/run_claim.h"
#include "weft/engine/run_model.h"
#include "weft/engine/run_start.h"

namespace weft {
namespace {

// A checkpoint's `run` is the trainer's own, but may have been changed to anything.
TEST(ResumedRun, DataThatAreNoListOfFilesAreComparedAsTheyAre) {
  TrainConfig config;
  config.source = "train.yaml";
  for (const char* data : {R"({"sets": 5})", R"({"sets": [7, null]})", R"({"sets": [{"file": 5}]})",
                           R"({"sets": [{"folder": "x"}]})", R"({"sets": {"file": "a.jsonl"}})", "[1]", "3"}) {
    Checkpoint checkpoint;
    checkpoint.plan = example_plan(kExampleRanks);
    checkpoint.run = {{"data", Json::parse(data)}};
    const auto error = check_resumed(checkpoint, checkpoint.plan, config);
    ASSERT_TRUE(error) << data;
    expect_start(error->message(), "train.yaml: data: is \"synthetic\", but the run in  has ");
  }
}

TEST(ResumedRun, AnErrorWithoutAdviceGetsOneSentenceMore) {
  const ScratchFolder scratch;
  const Error error = with_good_checkpoint({.source = "x", .problem = "is bad"}, scratch / "step-00000001", "take {}");
  EXPECT_EQ(error.message(), "x: is bad. No other checkpoint of the run is good.");
}

TEST(ResumedRun, AModelsNameLeadsOutOfNoFolder) {
  const ScratchFolder scratch;
  const std::filesystem::path before = std::filesystem::current_path();
  std::filesystem::create_directory(scratch / "here");
  std::filesystem::current_path(scratch / "here");
  for (const std::string& name : {std::string("../side"), (scratch / "side").string()}) {
    const auto claim = RunClaim::take_new(name);
    ASSERT_TRUE(claim.ok()) << claim.error().message();
    EXPECT_EQ(claim->folder(), std::filesystem::path("runs/side"));
  }
  std::filesystem::current_path(before);
  EXPECT_FALSE(std::filesystem::exists(scratch / "side"));
}

// A step's folder without its checkpoint.json, beside a model that was written from it.
TEST(ResumedRun, ARunWithoutItsCheckpointIsToldAndKeepsItsModel) {
  const ScratchFolder scratch;
  std::filesystem::create_directories(scratch / "checkpoints/step-00000004");
  std::filesystem::create_directories(scratch / "model/step-00000004");
  scratch.write("model/step-00000004/config.json", "{}");
  const auto model = model_of_run(scratch.path());
  ASSERT_FALSE(model.ok());
  EXPECT_NE(model.error().message().find("is no checkpoint: there is no checkpoint.json in it"), std::string::npos)
      << model.error().message();
  EXPECT_TRUE(std::filesystem::exists(scratch / "model/step-00000004/config.json"));
}

TEST(ResumedRun, ACircleOfLinksIsNoFolderOfARun) {
  const ScratchFolder scratch;
  std::filesystem::create_directory_symlink("loop", scratch / "loop");
  EXPECT_EQ(run_of(scratch / "loop"), std::filesystem::path());
  const auto claim = RunClaim::take(scratch / "loop");
  ASSERT_FALSE(claim.ok());
  EXPECT_NE(claim.error().message().find("cannot be made: Too many levels of symbolic links"), std::string::npos)
      << claim.error().message();
}

}  // namespace
}  // namespace weft
