#include <atomic>

#include <gtest/gtest.h>

#include "tests/training/conversation_training.h"
#include "weft/comm/run_ranks.h"
#include "weft/engine/batch_maker.h"
#include "weft/engine/sample_inputs.h"
#include "weft/loader/packed_source.h"
#include "weft/tensor/rank_threads.h"

namespace weft::training {
namespace {

constexpr int64_t kRowTokens = 300;

class TrainPackedRows : public ConversationTraining {
 protected:
  TrainConfig packed(int64_t steps = kSteps) const {
    TrainConfig config = this->config(steps);
    config.data->settings.packs = true;
    config.data->settings.encode.cutoff_tokens = kRowTokens;
    config.data->settings.max_broken_share = 0.5;
    config.data_threads = 2;
    return config;
  }
  /// Two sets of which one is seen more often.
  void add_weighted_set(TrainConfig& config) const {
    files_.write("more.jsonl", R"({"messages": [{"role": "user", "content": "<image> again?"},)"
                               R"( {"role": "assistant", "content": "Again."}], "images": ["media/palette.png"]})"
                               "\n"
                               R"({"messages": [{"role": "user", "content": "Once more."},)"
                               R"( {"role": "assistant", "content": "Yes, once more."}]})"
                               "\n");
    config.data->settings.files[0].weight = 5;
    config.data->settings.files.push_back(
        {.file = files_.folder() / "more.jsonl", .folder = files_.folder(), .weight = 2});
  }
};

RecordLengths lengths_of(const ConversationData& data) {
  return record_lengths(data, [](int64_t count, const std::function<void(int64_t)>& work) {
    for (int64_t i = 0; i < count; ++i) work(i);
  });
}

/// A batch of packed rows against each of its records alone in a microbatch: nothing is seen across a border.
TEST_F(TrainPackedRows, ABatchHasTheLossesOfItsRecordsAlone) {
  files_.write_records(120);
  const TrainConfig config = packed();
  const Plan plan = this->plan({});
  const auto error = run_ranks({.size = 1}, [&](World& world) {
    use_rank_threads(1);
    const auto rank = TrainingRank::create(world, plan, {.seed = 3});
    ASSERT_TRUE(rank.ok()) << rank.error().message();
    const ModelNumbers& numbers = (*rank)->numbers();
    const int64_t vocabulary = (*rank)->vocabulary();
    const auto data =
        ConversationData::open(plan.model, sample_form(numbers, vocabulary), config.data->model, config.data->settings);
    ASSERT_TRUE(data.ok()) << data.error().message();
    const auto lengths = std::make_shared<const RecordLengths>(lengths_of(**data));
    const auto rows = *PackedSource::create(*data, lengths, config.seed, false, "code");
    WorkerThreads workers(2);
    const SampleCosts costs;
    const BatchMaker maker{.plan = plan, .rank = **rank, .costs = costs, .workers = workers};
    const LocalBatch local = maker.make(*rows, 0);
    ASSERT_FALSE(local.error) << local.error->message();
    const double together = (*rank)->evaluate(local.batch);

    std::vector<Sample> records;
    for (int64_t row = 0; row < kBatch; ++row) {
      for (const SampleOrder::Place& place : rows->order().row(row).records) {
        auto draft = (*data)->read(place);
        ASSERT_FALSE((*data)->add_content(*draft, {}));
        records.push_back(std::move(draft->sample));
      }
    }
    EXPECT_GE(std::ssize(records), 2 * kBatch) << "rows hold several records";
    EXPECT_EQ(local.num_records, static_cast<double>(records.size()));
    double apart = 0, tokens = 0, targets = 0;
    for (size_t first = 0; first < records.size(); first += kBatch) {
      std::vector<Inputs> microbatches;
      for (size_t i = first; i < first + kBatch; ++i) {
        Sample record = records[i % records.size()];
        if (i >= records.size()) {
          std::fill(record.targets.begin(), record.targets.end(), kNoTarget);
        } else {
          tokens += static_cast<double>(record.ids.size());
        }
        microbatches.push_back(*inputs_of(numbers, vocabulary, {record}));
        targets += static_cast<double>(microbatches.back().num_targets());
      }
      apart += (*rank)->evaluate(microbatches);
    }
    EXPECT_EQ(local.num_tokens, tokens);
    EXPECT_EQ(local.num_targets, targets);
    EXPECT_GT(apart, 0);
    EXPECT_NEAR(together, apart, 1e-9 * apart);
  });
  ASSERT_FALSE(error) << error->message();
}

TEST_F(TrainPackedRows, LossesAreThoseOfOneRankOnAnyPlan) {
  files_.write_records(150, 6);
  TrainConfig config = packed();
  config.checkpoints.interval_steps = kSteps;
  config.data_threads = 1;
  add_weighted_set(config);
  const Outcome alone = train(plan({}), config);
  ASSERT_FALSE(alone.error) << alone.error->message();
  ASSERT_EQ(alone.numbers.size(), 4 * kSteps + 1);
  EXPECT_GT(alone.numbers[2], 0.8 * kBatch * kRowTokens) << "rows are nearly full";
  const std::string skipped = lines_of(last_run_);
  EXPECT_NE(skipped.find("cut.jpg"), std::string::npos) << "only decoding finds that\n" << skipped;
  EXPECT_NE(skipped.find("none.png"), std::string::npos) << skipped;
  config.data_threads = 8;
  expect_same(train(plan({}), config), alone, "eight threads", 0);
  EXPECT_EQ(lines_of(last_run_), skipped);
  for (const auto& [name, made] : plans()) {
    expect_same(train(made, config), alone, name);
    EXPECT_EQ(lines_of(last_run_), skipped) << name;
  }
}

TEST_F(TrainPackedRows, RanksThatPrepareTheirOwnPartOfRowsTrainTheSame) {
  files_.write_records(150, 11);
  const TrainConfig config = packed();
  const Outcome alone = train(plan({}), config);
  std::vector<std::pair<const char*, Plan>> all = plans();
  const EncoderExample over_cp{.placement = ModulePlacement::kColocated, .cp = 2};
  all.emplace_back("pp 2 and cp 2", plan({.cp = 2, .pp = 2, .mbs = 2}));
  all.emplace_back("vision over cp", plan({.tp = 2, .beside = {{ModuleKind::kVision, over_cp}}}));
  for (const auto& [name, made] : all) expect_same(train_apart(made, config), alone, name);
}

TEST_F(TrainPackedRows, ARunGoesOnWhereItStoppedAlsoByAnotherPlan) {
  files_.write_records(70, 9);  // less than three batches of rows, so that an epoch ends on the way
  TrainConfig config = packed();
  config.checkpoints.interval_steps = 1;
  config.checkpoints.keep = kSteps;
  const Outcome straight = train(plan({}), config);
  ASSERT_FALSE(straight.error) << straight.error->message();
  const std::filesystem::path run = last_run_;
  const auto made = plans();
  for (size_t i = 0; i < made.size(); ++i) {
    const auto steps = static_cast<int64_t>(i) % (kSteps - 1) + 1;
    const Outcome rest = train(made[i].second, config,
                               {.run_folder = files_.folder() / fmt::format("rest{}", num_runs_++),
                                .resumes = true,
                                .resume_from = run / fmt::format("checkpoints/step-{:08}", steps)});
    Outcome expected;
    expected.numbers.assign(straight.numbers.begin() + steps * 4, straight.numbers.end());
    expect_same(rest, expected, made[i].first);
  }
  // Unpacked is another run.
  config.data->settings.packs = false;
  const Outcome other = train(
      plan({}), config,
      {.run_folder = files_.folder() / "other", .resumes = true, .resume_from = run / "checkpoints/step-00000002"});
  ASSERT_TRUE(other.error);
  EXPECT_EQ(other.error->field, "data");
}

TEST_F(TrainPackedRows, RowsAreBalancedByTheLengthsOfTheirRecords) {
  files_.write_records(150);
  const TrainConfig config = packed();
  const Outcome alone = train(plan({}), config);
  Plan balanced = plan({.dp = 2});
  balanced.balance = Balance::kLlm;
  std::atomic<size_t> most_segments = 0;
  SampleCosts costs{.llm =
                        [&](const SampleLoad& load) {
                          most_segments = std::max(most_segments.load(), load.llm.size());
                          double pairs = 0;
                          for (const Segment& segment : load.llm)
                            pairs += segment.count * segment.length * segment.length;
                          return pairs;
                        },
                    .encoder = [](ModuleKind, const SampleLoad&) { return 0.0; }};
  expect_same(train(balanced, config, {.costs = costs}), alone, "balanced");
  EXPECT_GT(most_segments.load(), 2u);
}

/// Each record that can be used is evaluated once, packed or not.
TEST_F(TrainPackedRows, HeldOutRecordsHaveTheSameLossPackedOrNot) {
  files_.write_records(150, 11);
  TrainConfig config = packed(1);
  config.data->settings.held_out_share = 0.5;
  config.evaluation_batches = 100;
  const auto rows = Trainer(plan({}), config).evaluate();
  ASSERT_TRUE(rows.ok()) << rows.error().message();
  config.data->settings.packs = false;
  const auto records = Trainer(plan({.dp = 2}), config).evaluate();
  ASSERT_TRUE(records.ok()) << records.error().message();
  EXPECT_EQ((*rows)->num_targets, (*records)->num_targets);
  EXPECT_NEAR((*rows)->loss, (*records)->loss, 1e-9 * (*records)->loss);
  EXPECT_LT((*rows)->num_batches, (*records)->num_batches);
}

TEST_F(TrainPackedRows, EpochsAreCountedInRowsAndTheFirstLinesSayHowFullTheyAre) {
  files_.write_records(150, 11);
  TrainConfig config = packed(0);
  config.epochs = 1.5;
  std::vector<std::string> said;
  const Outcome outcome = train(plan({}), config, {.say = [&](const std::string& line) { said.push_back(line); }});
  ASSERT_FALSE(outcome.error) << outcome.error->message();
  std::string packing;
  for (const std::string& line : said) packing = line.starts_with("packed: ") ? line : packing;
  int64_t records = 0, rows = 0;
  ASSERT_EQ(sscanf(packing.c_str(), "packed: %ld records of data in %ld rows", &records, &rows), 2) << packing;
  EXPECT_GT(records, 100) << packing;
  EXPECT_NEAR(static_cast<double>(outcome.numbers.size() / 4), 1.5 * static_cast<double>(rows) / kBatch, 1) << packing;
}

TEST_F(TrainPackedRows, WhatTheDataCannotFillIsSaidAtTheStart) {
  files_.write_records(9);
  const Outcome few = train(plan({}), packed());
  ASSERT_TRUE(few.error);
  EXPECT_NE(few.error->message().find("packed rows to train on, but a step of the plan takes 8"), std::string::npos)
      << few.error->message();
  files_.write_records(40, 1);
  const Outcome none = train(plan({}), packed());
  ASSERT_TRUE(none.error);
}

}  // namespace
}  // namespace weft::training
