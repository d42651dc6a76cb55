#include <mutex>

#include <gtest/gtest.h>

#include "tests/training/conversation_training.h"
#include "weft/comm/run_ranks.h"
#include "weft/engine/batch_maker.h"
#include "weft/engine/predict.h"
#include "weft/engine/sample_inputs.h"
#include "weft/engine/training_session.h"
#include "weft/loader/conversation_source.h"

namespace weft::training {
namespace {

using TrainConversations = ConversationTraining;

TEST_F(TrainConversations, LossesAreThoseOfOneRankOnAnyPlan) {
  files_.write_records(60);
  TrainConfig config = this->config();
  config.checkpoints.interval_steps = kSteps;
  config.data_threads = 1;
  const Outcome alone = train(plan({}), config);
  ASSERT_FALSE(alone.error) << alone.error->message();
  ASSERT_EQ(alone.numbers.size(), 4 * kSteps + 1);
  EXPECT_LT(alone.numbers[4 * (kSteps - 1)], alone.numbers[0]) << "it learns";
  config.data_threads = 8;
  expect_same(train(plan({}), config), alone, "eight threads", 0);
  for (const auto& [name, made] : plans()) expect_same(train(made, config), alone, name);
}

/// Ranks that share no batches, as processes do not: each reads its own part of every sample.
TEST_F(TrainConversations, RanksThatPrepareTheirOwnPartOfSamplesTrainTheSame) {
  files_.write_records(60, 6);
  TrainConfig config = this->config();
  config.data->settings.max_broken_share = 0.5;
  config.data_threads = 2;
  const Outcome alone = train(plan({}), config);
  ASSERT_FALSE(alone.error) << alone.error->message();
  std::vector<std::pair<const char*, Plan>> all = plans();
  const EncoderExample over_cp{.placement = ModulePlacement::kColocated, .cp = 2};
  all.emplace_back("pp 2 and cp 2", plan({.cp = 2, .pp = 2, .mbs = 2}));
  all.emplace_back("vision over cp", plan({.tp = 2, .beside = {{ModuleKind::kVision, over_cp}}}));
  for (const auto& [name, made] : all) {
    expect_same(train_apart(made, config), alone, name);
  }
}

/// Rows of pixels and mel frames in a batch's microbatches.
struct HeldContent {
  int64_t pixels = 0, frames = 0;
};

TEST_F(TrainConversations, ARankReadsOnlyWhatItsModulesTakeIn) {
  files_.write_records(60);
  const TrainConfig config = this->config();
  const auto held = [&](const Plan& plan, bool is_shared) {
    std::vector<HeldContent> all(static_cast<size_t>(plan.world_size));
    const auto error = run_ranks({.size = plan.world_size}, [&](World& world) {
      const auto rank = TrainingRank::create(world, plan, {.seed = 3});
      ASSERT_TRUE(rank.ok()) << rank.error().message();
      const SampleForm form = sample_form((*rank)->numbers(), (*rank)->vocabulary());
      const auto data = ConversationData::open(plan.model, form, config.data->model, config.data->settings);
      ASSERT_TRUE(data.ok()) << data.error().message();
      const ConversationSource samples(*data, config.seed, false);
      WorkerThreads workers(2);
      const SampleCosts costs;
      const BatchMaker maker{.plan = plan, .rank = **rank, .costs = costs, .workers = workers, .is_shared = is_shared};
      const LocalBatch local = maker.make(samples, 0);
      ASSERT_FALSE(local.error) << local.error->message();
      HeldContent& own = all[static_cast<size_t>(world.rank())];
      for (const Inputs& inputs : local.batch.microbatches) {
        if (inputs.vision) own.pixels += inputs.vision->pixels.size(0);
        if (inputs.audio) own.frames += inputs.audio->frames.size(0);
      }
    });
    EXPECT_FALSE(error) << error->message();
    return all;
  };
  const HeldContent whole = held(plan({}), false)[0];
  ASSERT_GT(whole.pixels, 0);
  ASSERT_GT(whole.frames, 0);
  for (const HeldContent& shared : held(plan({.cp = 2}), true)) EXPECT_EQ(shared.pixels, whole.pixels);
  const std::vector<HeldContent> halves = held(plan({.cp = 2}), false);
  EXPECT_EQ(halves[0].pixels + halves[1].pixels, whole.pixels);
  for (const HeldContent& half : halves) {
    EXPECT_LT(half.pixels, 0.7 * static_cast<double>(whole.pixels));
    EXPECT_LT(half.frames, 0.7 * static_cast<double>(whole.frames)) << "with the frames that both convolve";
  }
  const std::vector<HeldContent> stages = held(plan({.pp = 2, .mbs = 2}), false);
  EXPECT_EQ(stages[0].pixels, whole.pixels);
  EXPECT_EQ(stages[0].frames, whole.frames);
  EXPECT_EQ(stages[1].pixels + stages[1].frames, 0) << "the encoders are on the first stage";
}

TEST_F(TrainConversations, RecordsThatCannotBeUsedAreReplacedAlikeOnAnyPlan) {
  files_.write_records(60, 6);
  TrainConfig config = this->config();
  config.checkpoints.interval_steps = kSteps;
  config.data->settings.max_broken_share = 0.5;
  const Outcome alone = train(plan({}), config);
  ASSERT_FALSE(alone.error) << alone.error->message();
  const std::string skipped = lines_of(last_run_);
  EXPECT_NE(skipped.find("cut.jpg"), std::string::npos) << "only decoding finds that\n" << skipped;
  EXPECT_NE(skipped.find("none.png"), std::string::npos) << skipped;
  config.data_threads = 8;
  for (const auto& [name, made] : plans()) {
    expect_same(train(made, config), alone, name);
    EXPECT_EQ(lines_of(last_run_), skipped) << name;
  }
}

TEST_F(TrainConversations, ARunGoesOnWhereItStoppedAlsoByAnotherPlan) {
  files_.write_records(30, 7);
  TrainConfig config = this->config();
  config.data->settings.max_broken_share = 0.5;
  config.data->settings.held_out_share = 0.4;  // less than three batches are left, so that an epoch ends on the way
  config.checkpoints.interval_steps = 2;
  const Outcome straight = train(plan({}), config);
  ASSERT_FALSE(straight.error) << straight.error->message();
  const std::filesystem::path checkpoint = last_run_ / "checkpoints/step-00000002";
  for (const auto& [name, made] : plans()) {
    const Outcome rest = train(made, config,
                               {.run_folder = files_.folder() / fmt::format("rest{}", num_runs_++),
                                .resumes = true,
                                .resume_from = checkpoint});
    Outcome expected;
    expected.numbers.assign(straight.numbers.begin() + 2 * 4, straight.numbers.end());
    expect_same(rest, expected, name);
  }
  // Other data are another run.
  config.data->settings.encode.loss = LossOn::kEverything;
  const Outcome other =
      train(plan({}), config, {.run_folder = files_.folder() / "other", .resumes = true, .resume_from = checkpoint});
  ASSERT_TRUE(other.error);
  EXPECT_EQ(other.error->field, "data");
}

TEST_F(TrainConversations, TooManyBrokenRecordsStopTheRun) {
  files_.write_records(60, 2);
  const TrainConfig config = this->config();
  const Outcome outcome = train(plan({.dp = 2}), config);
  ASSERT_TRUE(outcome.error);
  EXPECT_NE(outcome.error->message().find("samples are broken, 10 % are allowed"), std::string::npos)
      << outcome.error->message();
  EXPECT_NE(lines_of(last_run_).find("none.png"), std::string::npos) << "what stopped it is listed";
}

TEST_F(TrainConversations, WhatTheDataCannotFillIsSaidAtTheStart) {
  files_.write_records(9);
  TrainConfig config = this->config();
  const Outcome few = train(plan({}), config);
  ASSERT_FALSE(few.error) << "nine less one that is held out fill a batch: " << few.error->message();
  files_.write_records(8);
  const Outcome fewer = train(plan({}), config);
  ASSERT_TRUE(fewer.error);
  EXPECT_NE(fewer.error->message().find("have 7 samples to train on, but a step of the plan takes 8"),
            std::string::npos)
      << fewer.error->message();
  files_.write_records(60);
  config.data->settings.held_out_share = 0;
  const auto unseen = Trainer(plan({}), config).evaluate();
  ASSERT_FALSE(unseen.ok());
  EXPECT_EQ(unseen.error().field, "held_out_share");
}

TEST_F(TrainConversations, AnswersInWordsAreThoseOfOneRankOnAnyPlan) {
  files_.write_records(60);
  TrainConfig config = this->config(2);
  config.checkpoints.interval_steps = 2;
  config.data->settings.held_out_share = 0;
  ASSERT_FALSE(train(plan({}), config).error);
  const std::filesystem::path media = files_.folder() / "media", frames = files_.folder() / "frames";
  std::filesystem::create_directory(frames);
  for (const auto& [from, to] :
       {std::pair("grey.png", "0.png"), std::pair("alpha.png", "1.png"), std::pair("grey.png", "2.png")})
    std::filesystem::copy_file(media / from, frames / to);
  PredictRequest request{.run_folder = last_run_,
                         .prompt = "<image> and <video>: what is it? <audio>",
                         .images = {media / "plain.jpg"},
                         .audios = {media / "plain.wav"},
                         .videos = {frames},
                         .max_new_tokens = 6,
                         .dtype = "fp64"};
  std::string streamed;
  request.on_text = [&](const std::string& part) { streamed += part; };
  const auto alone = predict(request);
  ASSERT_TRUE(alone.ok()) << alone.error().message();
  ASSERT_EQ(alone->prompts.size(), 1u);
  EXPECT_EQ(alone->prompts[0].text, streamed);
  request.on_text = {};
  // Media count: without the video the prompt is shorter.
  PredictRequest fewer = request;
  fewer.prompt = "<image> what is it? <audio>";
  fewer.videos.clear();
  EXPECT_LT(predict(fewer)->prompts[0].input_tokens, alone->prompts[0].input_tokens);
  for (auto& [name, made] : plans()) {
    request.plan = std::move(made);
    const auto found = predict(request);
    ASSERT_TRUE(found.ok()) << name << ": " << found.error().message();
    EXPECT_EQ(found->prompts[0].tokens, alone->prompts[0].tokens) << name;
    EXPECT_EQ(found->prompts[0].text, alone->prompts[0].text) << name;
  }

  request.images.push_back(media / "row.png");
  EXPECT_EQ(predict(request).error().source, "--image") << "two pictures, one place";
  request.images.pop_back();
  request.videos = {media / "grey.png"};
  EXPECT_NE(predict(request).error().message().find("is a file, a folder of frames is needed"), std::string::npos);
}

}  // namespace
}  // namespace weft::training
