#include "weft/schedule/encoder_forms.h"

#include <algorithm>
#include <chrono>
#include <random>

#include <gtest/gtest.h>

#include "tests/support/schedule/example_encoders.h"
#include "weft/schedule/csv.h"
#include "weft/schedule/lowering.h"
#include "weft/schedule/step_end.h"
#include "weft/schedule/validate.h"

namespace weft {
namespace {

void expect_valid(const Schedule& schedule, const std::string& what) {
  auto problem = find_problem(schedule);
  ASSERT_FALSE(problem) << what << "\n" << show_problem(schedule, *problem);
  const Result<Schedule> lowered = lower_schedule(schedule);
  ASSERT_TRUE(lowered.ok()) << what << ": " << lowered.error().message();
  problem = find_problem(*lowered);
  ASSERT_FALSE(problem) << what << "\n" << show_problem(*lowered, *problem);
}

/// A random encoder that the pipeline can run, in a form that fits it.
EncoderPlacement random_placement(const Schedule& llm, EncoderForm form, int32_t first_free_rank,
                                  std::mt19937_64& random) {
  const auto pick = [&](int32_t low, int32_t high) {
    return low + static_cast<int32_t>(random() % static_cast<uint64_t>(high - low + 1));
  };
  const bool is_stream = form == EncoderForm::kStream;
  const int32_t stages = is_stream ? pick(1, 3) : 1;
  const int32_t first = is_stream ? first_free_rank : pick(0, llm.num_ranks() - 1);
  const int32_t size = pick(1, 3);
  const int32_t num_ranks = is_stream ? stages * pick(1, 2) * size : llm.num_ranks() - first;
  ScheduledEncoder rows = encoder_rows({.microbatches = llm.num_microbatches,
                                        .mbs_scale = pick(1, 4),
                                        .mbs_parts = pick(1, 3),
                                        .dp_encoder = pick(1, 3),
                                        .dp_llm = pick(1, 3)},
                                       groups_of(first, num_ranks, size));
  rows.num_stages = stages;
  rows.is_trained = pick(0, 2) > 0;
  rows.recompute_from_inputs = rows.is_trained && pick(0, 2) == 0;
  ScheduledEncoder kept = rows;
  if (is_stream) kept.recompute_from_inputs = false;
  const int32_t least = least_live_macro_batches(llm, kept) + (rows.is_trained ? stages - 1 : 0);
  if (form != EncoderForm::kBefore) rows.live_macro_batches = pick(0, 1) == 0 ? 0 : least + pick(0, 2);
  return placement(form, rows, pick(1, 30) / 10.0, pick(1, 60) / 10.0);
}

TEST(EncoderForms, EveryFormOnEveryPipelineIsValidBeforeAndAfterLowering) {
  std::mt19937_64 random(5);
  for (const auto& [name, most_vpp] : {std::pair{ScheduleName::kGpipe, 1},
                                       {ScheduleName::k1f1b, 1},
                                       {ScheduleName::kInterleaved1f1b, 4},
                                       {ScheduleName::kZbH1, 1},
                                       {ScheduleName::kZbV, 2}}) {
    for (int64_t pp = 1; pp <= 8; ++pp) {
      for (int trial = 0; trial < 24; ++trial) {
        const int64_t vpp = most_vpp < 3 ? most_vpp : 2 + trial % 3;
        Schedule llm = pipeline(name, pp, vpp, 1 + static_cast<int64_t>(random() % 32));
        if (trial % 4 == 0) llm.entry_stage = static_cast<int32_t>(random() % static_cast<uint64_t>(llm.num_stages()));
        std::vector<EncoderPlacement> encoders;
        int32_t first_free_rank = llm.num_ranks();
        for (int i = 0; i <= trial % 3; ++i) {
          const auto form = static_cast<EncoderForm>((trial / 3 + i * (1 + trial % 2)) % 4);
          encoders.push_back(random_placement(llm, form, first_free_rank, random));
          if (form != EncoderForm::kStream) continue;
          for (const auto& group : encoders.back().rows.groups) first_free_rank += static_cast<int32_t>(group.size());
        }
        const Result<Schedule> schedule = place_encoders(llm, encoders, uniform(llm.num_stages(), 1, 1, 1));
        ASSERT_TRUE(schedule.ok()) << schedule.error().message();
        expect_valid(*schedule, name_of(name) + " pp " + std::to_string(pp) + " trial " + std::to_string(trial));
        expect_valid(with_step_end(*schedule), "with its step's end");
        if (HasFatalFailure()) return;
      }
    }
  }
}

TEST(EncoderForms, RowsAndGradientsAreSentWhenCompleteAndReceivedBeforeTheyAreRead) {
  // Two microbatches, a macro batch of both, on a rank behind the pipeline's two; the llm begins in its second stage.
  Schedule llm = pipeline(ScheduleName::k1f1b, 2, 1, 2);
  llm.entry_stage = 1;
  const EncoderPlacement encoder =
      placement(EncoderForm::kStream, encoder_rows({.microbatches = 2, .mbs_scale = 2}, {{2}}), 1, 1);
  const Schedule lowered = *lower_schedule(with_step_end(*place_encoders(llm, std::vector<EncoderPlacement>{encoder})));
  EXPECT_EQ(to_csv(lowered),
            "0F0,0SEND_F0,0F1,0SEND_F1,0RECV_B0,0B0,0RECV_B1,0B1,0REDUCE_GRAD,0UPDATE\n"
            "1RECV_F0,1RECV_F1,0RECV_R0,1F0,1B0,1SEND_B0,1F1,1B1,1SEND_B1,0SEND_G0,1REDUCE_GRAD,1UPDATE\n"
            "0EF0,0SEND_R0,0RECV_G0,0EB0,0ER,0EU\n");
}

TEST(EncoderForms, StagesOfAnEncodersOwnPipelineSendWhatTheyMakeAndReceiveItBeforeTheyReadIt) {
  const Schedule llm = pipeline(ScheduleName::k1f1b, 1, 1, 1);
  ScheduledEncoder rows = encoder_rows({.microbatches = 1}, {{1}, {2}, {3}});
  rows.num_stages = 3;
  const EncoderPlacement encoder = placement(EncoderForm::kStream, rows, 1, 1);
  const Schedule lowered = *lower_schedule(*place_encoders(llm, std::vector<EncoderPlacement>{encoder}));
  EXPECT_FALSE(find_problem(lowered));
  EXPECT_EQ(to_csv(lowered),
            "0RECV_R0,0F0,0B0,0SEND_G0\n"
            "0EF0,0SEND_EF0,0RECV_EB0,0EB0\n"
            "0RECV_EF0,0EF0,0SEND_EF0,0RECV_EB0,0EB0,0SEND_EB0\n"
            "0RECV_EF0,0EF0,0SEND_R0,0RECV_G0,0EB0,0SEND_EB0\n");
}

TEST(EncoderForms, BeforeRunsEverythingFirstAndBackwardsLast) {
  const ScheduledEncoder rows = encoder_rows({.microbatches = 2}, groups_of(0, 2, 1));
  EncoderPlacement encoder = placement(EncoderForm::kBefore, rows, 1, 1);
  EXPECT_EQ(to_csv(*place_encoders(pipeline(ScheduleName::k1f1b, 2, 1, 2), {&encoder, 1})),
            "0EF0,0EF1,0F0,0F1,0B0,0B1,0EB0,0EB1\n0EF0,0EF1,1F0,1B0,1F1,1B1,0EB0,0EB1\n");
  encoder.rows.is_trained = false;
  EXPECT_EQ(to_csv(*place_encoders(pipeline(ScheduleName::k1f1b, 2, 1, 2), {&encoder, 1})),
            "0EF0,0EF1,0F0,0F1,0B0,0B1\n0EF0,0EF1,1F0,1B0,1F1,1B1\n");
}

TEST(EncoderForms, OnDemandEncodesRightBeforeAMicrobatchAndGoesBackRightAfterIt) {
  const auto rows_of = [](int64_t pp, ScheduledEncoder rows) {
    const EncoderPlacement encoder = placement(EncoderForm::kOnDemand, std::move(rows), 1, 1);
    return to_csv(*place_encoders(pipeline(ScheduleName::k1f1b, pp, 1, 3), {&encoder, 1}));
  };
  EXPECT_EQ(rows_of(1, encoder_rows({.microbatches = 3}, {{0}})),
            "0EF0,0F0,0B0,0EB0,0EF1,0F1,0B1,0EB1,0EF2,0F2,0B2,0EB2\n");
  EXPECT_EQ(rows_of(1, encoder_rows({.microbatches = 3, .mbs_parts = 2}, {{0}})),
            "0EF0,0EF1,0F0,0B0,0EB0,0EB1,0EF2,0EF3,0F1,0B1,0EB2,0EB3,0EF4,0EF5,0F2,0B2,0EB4,0EB5\n")
      << "half a microbatch each";
  EXPECT_EQ(rows_of(1, encoder_rows({.microbatches = 3, .mbs_parts = 4, .dp_encoder = 8, .dp_llm = 2}, {{0}})),
            "0EF0,0F0,0B0,0EB0,0EF1,0F1,0B1,0EB1,0EF2,0F2,0B2,0EB2\n")
      << "a quarter of a rank's microbatch on four times as many ranks is a microbatch of all of them";
  EXPECT_EQ(rows_of(1, encoder_rows({.microbatches = 3, .mbs_scale = 2}, {{0}})),
            "0EF0,0F0,0B0,0F1,0B1,0EB0,0EF1,0F2,0B2,0EB1\n")
      << "two microbatches each, the last short";
  EXPECT_EQ(rows_of(2, encoder_rows({.microbatches = 3}, groups_of(0, 2, 1))),
            "0EF0,0F0,0EF1,0F1,0B0,0EB0,0EF2,0F2,0B1,0EB1,0B2,0EB2\n"
            "0EF0,0EF1,1F0,1B0,1F1,0EB0,0EF2,1B1,1F2,0EB1,1B2,0EB2\n");
}

TEST(EncoderForms, StreamGoesThroughItsOwnStagesOneForwardOneBackward) {
  ScheduledEncoder rows = encoder_rows({.microbatches = 4}, {{2}, {3}});
  rows.num_stages = 2;
  rows.live_macro_batches = 3;
  const EncoderPlacement encoder = placement(EncoderForm::kStream, rows, 1, 1);
  EXPECT_EQ(to_csv(*place_encoders(pipeline(ScheduleName::k1f1b, 2, 1, 4), {&encoder, 1})),
            "0F0,0F1,0B0,0F2,0B1,0F3,0B2,0B3\n1F0,1B0,1F1,1B1,1F2,1B2,1F3,1B3\n"
            "0EF0,0EF1,0EF2,0EB0,0EF3,0EB1,0EB2,0EB3\n0EF0,0EF1,0EB0,0EF2,0EB1,0EF3,0EB2,0EB3\n");
}

TEST(EncoderForms, MacroBatchesCoverMbsScaleTimesDegreesMicrobatches) {
  const MacroRanges whole = *macro_ranges({.microbatches = 5, .mbs_scale = 2, .dp_encoder = 4, .dp_llm = 4});
  EXPECT_EQ(whole.num_macro_batches, 3) << "two microbatches each, the last is short";
  EXPECT_EQ(whole.first_macro, (std::vector<int32_t>{0, 0, 1, 1, 2}));
  EXPECT_EQ(whole.end_macro, (std::vector<int32_t>{1, 1, 2, 2, 3}));
  const MacroRanges broken = *macro_ranges({.microbatches = 4, .mbs_scale = 1, .dp_encoder = 3, .dp_llm = 2});
  EXPECT_EQ(broken.num_macro_batches, 3) << "one and a half microbatches each";
  EXPECT_EQ(broken.first_macro, (std::vector<int32_t>{0, 0, 1, 2}));
  EXPECT_EQ(broken.end_macro, (std::vector<int32_t>{1, 2, 2, 3}));
  const MacroRanges small = *macro_ranges({.microbatches = 2, .mbs_scale = 1, .dp_encoder = 1, .dp_llm = 3});
  EXPECT_EQ(small.first_macro, (std::vector<int32_t>{0, 3})) << "a third of a microbatch each";
  EXPECT_EQ(small.end_macro, (std::vector<int32_t>{3, 6}));
  EXPECT_EQ(macro_ranges({.mbs_scale = 0}).error().source, "mbs_scale");
  const Result<MacroRanges> many = macro_ranges({.microbatches = 1'000'000, .mbs_scale = 1, .mbs_parts = 1'000'000});
  ASSERT_FALSE(many.ok());
  EXPECT_EQ(many.error().message(),
            "mbs_scale: makes 1,000,000,000,000 macro batches a step, at most 4,000,000 are allowed; use a larger one");
}

TEST(EncoderForms, TheOrderOfManyMacroBatchesIsCheckedInTimeByTheirNumber) {
  // Looking each action up among those before it would take minutes.
  constexpr int32_t kMacro = 400'000;
  const auto start = std::chrono::steady_clock::now();
  for (const bool recomputes : {false, true}) {
    ScheduledEncoder rows = encoder_rows({.microbatches = 4, .mbs_parts = kMacro / 4}, {{0}});
    rows.recompute_from_inputs = recomputes;
    rows.live_macro_batches = kMacro;
    const EncoderPlacement encoder = placement(EncoderForm::kBefore, rows, 1, 1);
    Schedule schedule = *place_encoders(pipeline(ScheduleName::k1f1b, 1, 1, 4), {&encoder, 1});
    EXPECT_EQ(num_actions(schedule), 2u * kMacro + 8);
    EXPECT_FALSE(find_problem(schedule));
    schedule.rows[0][kMacro / 2] = {ActionKind::kEncodeForward, 0, 3};
    EXPECT_EQ(find_problem(schedule)->message, "comes twice");
    schedule.rows[0][kMacro / 2] = {ActionKind::kEncodeBackward, 0, kMacro - 1};
    EXPECT_EQ(find_problem(schedule)->message, "runs before its forward");
  }
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(60));
}

TEST(EncoderForms, TheLeastLiveNumberFollowsFromTheFirstStage) {
  const auto least = [](ScheduleName name, int64_t pp, int64_t m, bool is_trained) {
    ScheduledEncoder rows = encoder_rows({.microbatches = m}, {{0}});
    rows.is_trained = is_trained;
    return least_live_macro_batches(pipeline(name, pp, 1, m), rows);
  };
  EXPECT_EQ(least(ScheduleName::k1f1b, 4, 16, true), 4) << "1F1B's first stage holds pp microbatches";
  EXPECT_EQ(least(ScheduleName::kGpipe, 4, 16, true), 16) << "GPipe returns gradients after all forwards";
  EXPECT_EQ(least(ScheduleName::k1f1b, 4, 16, false), 1) << "a frozen one's outputs are read once";
}

TEST(EncoderForms, ImpossiblePlacementsNameTheField) {
  const Schedule llm = pipeline(ScheduleName::k1f1b, 2, 1, 4);
  const auto message = [&](EncoderForm form, auto change) {
    ScheduledEncoder rows = encoder_rows({.microbatches = 4}, {{0}});
    change(rows);
    const EncoderPlacement encoder = placement(form, rows, 1, 1);
    return place_encoders(llm, {&encoder, 1}, uniform(2, 1, 1, 1)).error().message();
  };
  EXPECT_EQ(message(EncoderForm::kFill, [](ScheduledEncoder& rows) { rows.live_macro_batches = 1; }),
            "vision: live_macro_batches: is 1, but 2 are alive at once in this pipeline's order. Raise it, or set it "
            "to 0 for no bound.");
  EXPECT_EQ(
      message(EncoderForm::kBefore, [](ScheduledEncoder& rows) { rows.live_macro_batches = 3; }),
      "vision: live_macro_batches: is 3, but 4 are alive at once in this form. Raise it, or set it to 0 for no bound.");
  EXPECT_EQ(
      message(EncoderForm::kFill, [](ScheduledEncoder& rows) { rows.groups = {{2}}; }),
      "vision: groups: rank 2 is not one of the pipeline's 2 ranks. The forms before, fill and on_demand share the "
      "pipeline's ranks.");
  EXPECT_EQ(message(EncoderForm::kStream, [](ScheduledEncoder& rows) { rows.groups = {{1}}; }),
            "vision: groups: rank 1 is one of the pipeline's 2 ranks. The form stream is for ranks of its own.");
  EXPECT_EQ(
      message(EncoderForm::kFill,
              [](ScheduledEncoder& rows) {
                rows.groups = {{0}, {1}}, rows.num_stages = 2;
              }),
      "vision: pp: is 2, but an encoder on the pipeline's ranks has pp 1. Use the form stream on ranks of its own.");
  EXPECT_EQ(message(EncoderForm::kFill, [](ScheduledEncoder& rows) { rows.num_macro_batches = 5; }),
            "vision: num_macro_batches: is 5, but microbatches need 4");
  EXPECT_EQ(
      message(EncoderForm::kFill, [](ScheduledEncoder& rows) { std::swap(rows.first_macro[1], rows.first_macro[2]); }),
      "vision: first_macro: microbatch 1 needs macro batches 2 to 2, out of order");
}

TEST(EncoderForms, StreamsHaveRanksOfTheirOwnWithoutGaps) {
  const Schedule llm = pipeline(ScheduleName::k1f1b, 2, 1, 4);
  const auto message = [&](std::vector<int32_t> ranks) {
    std::vector<EncoderPlacement> encoders;
    for (const int32_t rank : ranks) {
      encoders.push_back(placement(EncoderForm::kStream, encoder_rows({.microbatches = 4}, {{rank}}), 1, 1));
    }
    const Result<Schedule> schedule = place_encoders(llm, encoders);
    return schedule ? "" : schedule.error().message();
  };
  EXPECT_EQ(message({3, 2}), "");
  EXPECT_EQ(message({2, 2}), "vision: groups: rank 2 streams another encoder already");
  EXPECT_EQ(message({2, 2'000'000'000}),
            "groups: rank 2000000000 streams, but with the pipeline there are only 4 ranks. "
            "Number the ranks of streams from the pipeline's on, without gaps.");
}

/// The problem of a two-rank pipeline with an encoder on both ranks, its rows given as words.
std::string problem_of(const std::vector<std::string>& rows, auto change, std::vector<int32_t> rank_of_stage = {0, 1}) {
  Schedule schedule{.num_microbatches = 2,
                    .rank_of_stage = std::move(rank_of_stage),
                    .rows = {},
                    .encoders = {encoder_rows({.microbatches = 2}, {{0, 1}})}};
  change(schedule.encoders[0]);
  for (const std::string& text : rows) {
    auto& row = schedule.rows.emplace_back();
    for (size_t at = 0; at < text.size(); at += text.substr(at).find(' ') + 1) {
      row.push_back(*parse_action(text.substr(at, text.find(' ', at) - at)));
      if (text.find(' ', at) == std::string::npos) break;
    }
  }
  const auto problem = find_problem(schedule);
  return problem ? "rank " + std::to_string(problem->rank) + " at " + std::to_string(problem->position) + ": " +
                       problem->message
                 : "";
}

TEST(Validator, FindsEachMistakeOfAnEncoder) {
  const auto nothing = [](ScheduledEncoder&) {};
  const std::string rank1 = "0EF0 0EF1 1F0 1B0 1F1 1B1 0EB0 0EB1";
  EXPECT_EQ(problem_of({"0EF0 0EF1 0F0 0F1 0B0 0B1 0EB0 0EB1", rank1}, nothing), "");
  EXPECT_EQ(problem_of({"0EF0 0F0 0F1 0EF1 0B0 0B1 0EB0 0EB1", rank1}, nothing),
            "rank 0 at 2: waits for ever: the rows deadlock");
  EXPECT_EQ(problem_of({"0EF0 0EF1 0F0 0F1 0EB0 0B0 0B1 0EB1", rank1}, nothing),
            "rank 0 at 4: waits for ever: the rows deadlock");
  EXPECT_EQ(problem_of({"0EF1 0EF0 0F0 0F1 0B0 0B1 0EB0 0EB1", rank1}, nothing),
            "rank 1 at 8: runs encoder vision in another order than rank 0 of its group");
  EXPECT_EQ(problem_of({"0EF0 0EF1 0F0 0F1 0B0 0B1 0EB0", rank1}, nothing),
            "rank 0 at 7: runs 3 of the 4 actions of encoder vision");
  EXPECT_EQ(problem_of({"0EF0 0EF1 0F0 0F1 0B0 0B1 0EB0 0EB1", rank1},
                       [](ScheduledEncoder& rows) { rows.live_macro_batches = 1; }),
            "rank 0 at 1: makes 2 macro batches alive, encoder vision may have 1");
  EXPECT_EQ(problem_of({"0EF0 0EF1 0F0 0F1 0B0 0B1", "0EF0 0EF1 1F0 1B0 1F1 1B1"},
                       [](ScheduledEncoder& rows) { rows.live_macro_batches = 1, rows.is_trained = false; }),
            "rank 0 at 1: waits for ever: the rows deadlock")
      << "the second forward waits until the first output is read, which comes behind it";
  EXPECT_EQ(problem_of({"0F0", "1F0"},
                       [](ScheduledEncoder& rows) {
                         rows.groups = {{0, 7}};
                       }),
            "rank 0 at 0: encoder vision runs on rank 7, which has no row");
  EXPECT_EQ(problem_of({"0F0", "1F0"},
                       [](ScheduledEncoder& rows) {
                         rows.end_macro = {1, 3};
                       }),
            "rank 0 at 0: microbatch 1 needs macro batches that encoder vision does not have");
}

TEST(Validator, FindsEachMistakeOfRowsBetweenAnEncoderAndTheLlm) {
  const std::string first =
      "0EF0 0SEND_R0 0EF1 0SEND_R1 0RECV_R0 0F0 0SEND_F0 0RECV_R1 0F1 0SEND_F1 0RECV_B0 0B0 0SEND_G0 0RECV_B1 0B1 "
      "0SEND_G1 0RECV_G0 0EB0 0RECV_G1 0EB1 0ER 0EU";
  const std::string second =
      "0EF0 0SEND_R0 0EF1 0SEND_R1 1RECV_F0 1F0 1RECV_F1 1B0 1SEND_B0 1F1 1B1 1SEND_B1 0RECV_G0 0EB0 0RECV_G1 0EB1 "
      "0ER 0EU";
  // What is found when a part of the first row is another.
  const auto found = [&](const std::string& part, const std::string& other, bool is_trained = true) {
    std::string row = first;
    row.replace(row.find(part), part.size(), other);
    return problem_of({row, second}, [&](ScheduledEncoder& rows) { rows.is_trained = is_trained; });
  };
  EXPECT_EQ(found("0EU", "0EU"), "");
  EXPECT_EQ(found(" 0SEND_R1", ""), "rank 0 at 21: 0SEND_R1 is missing");
  EXPECT_EQ(found("0EF0 0SEND_R0", "0SEND_R0 0EF0"), "rank 0 at 0: sends what is not made yet");
  EXPECT_EQ(found("0RECV_R0 0F0", "0F0 0RECV_R0"), "rank 0 at 4: runs before 0SEND_R0 is received");
  EXPECT_EQ(found("0SEND_R1 0RECV_R0", "0RECV_R0 0SEND_R1 0RECV_R0"), "rank 0 at 5: comes twice");
  EXPECT_EQ(found("0B0 0SEND_G0", "0SEND_G0 0B0"),
            "rank 0 at 11: sends gradients when 1 microbatches have yet to make theirs");
  EXPECT_EQ(found("0SEND_G0 0RECV_B1 0B1 0SEND_G1", "0RECV_B1 0B1 0SEND_G1 0SEND_G0"),
            "rank 0 at 16: rank 0 sends 0SEND_G1 here: the two ends disagree on the order");
  EXPECT_EQ(found("0RECV_G1 0EB1", "0EB1 0RECV_G1"), "rank 0 at 18: runs before its rows' gradients are received");
  EXPECT_EQ(found("0RECV_R0 0F0", "0RECV_G0 0RECV_R0 0F0"), "rank 0 at 17: comes twice");
  EXPECT_EQ(found("0EB1 0ER", "0ER 0EB1"), "rank 0 at 19: comes when the encoder has 1 actions left");
  EXPECT_EQ(found("0ER 0EU", "0EU 0ER"), "rank 0 at 21: comes after the encoder's update");
  EXPECT_EQ(found("0EU", "0ER"), "rank 0 at 21: comes twice");
  // On a rank where the llm does not begin.
  EXPECT_EQ(problem_of({first, "0RECV_R0 " + second}, [](ScheduledEncoder&) {}),
            "rank 1 at 0: is not done here, but where the llm begins");
  // Received before it was sent.
  std::string early = first;
  const std::string part = "0EF1 0SEND_R1 0RECV_R0 0F0 0SEND_F0 0RECV_R1";
  early.replace(early.find(part), part.size(), "0RECV_R0 0F0 0SEND_F0 0RECV_R1 0EF1 0SEND_R1");
  EXPECT_EQ(problem_of({early, second}, [](ScheduledEncoder&) {}), "rank 0 at 4: waits for ever: the rows deadlock");
}

TEST(Validator, FindsEachMistakeOfTransfersInsideAnEncodersPipeline) {
  const std::string llm = "0RECV_R0 0F0 0RECV_R1 0F1 0B0 0SEND_G0 0B1 0SEND_G1";
  const std::string first = "0EF0 0SEND_EF0 0EF1 0SEND_EF1 0RECV_EB0 0EB0 0RECV_EB1 0EB1";
  const std::string second =
      "0RECV_EF0 0EF0 0SEND_R0 0RECV_EF1 0EF1 0SEND_R1 0RECV_G0 0EB0 0SEND_EB0 0RECV_G1 0EB1 0SEND_EB1";
  const auto problem = [&](const std::string& of_first, const std::string& of_second) {
    return problem_of({llm, of_first, of_second},
                      [&](ScheduledEncoder& rows) {
                        rows.groups = {{1}, {2}};
                        rows.num_stages = 2;
                      },
                      {0});
  };
  const auto changed = [](std::string row, const std::string& part, const std::string& other) {
    return row.replace(row.find(part), part.size(), other);
  };
  EXPECT_EQ(problem(first, second), "");
  EXPECT_EQ(problem(changed(first, " 0SEND_EF1", ""), second), "rank 1 at 7: 0SEND_EF1 is missing");
  EXPECT_EQ(problem(changed(first, "0EF0 0SEND_EF0", "0SEND_EF0 0EF0"), second),
            "rank 1 at 0: sends what is not made yet");
  EXPECT_EQ(problem(changed(first, "0RECV_EB1 0EB1", "0EB1 0RECV_EB1"), second),
            "rank 1 at 6: runs before its output's gradient is received");
  EXPECT_EQ(problem(first, changed(second, "0RECV_EF1 0EF1", "0EF1 0RECV_EF1")),
            "rank 2 at 3: runs before its input is received");
  EXPECT_EQ(problem(first, changed(second, "0EB0 0SEND_EB0", "0SEND_EB0 0EB0")),
            "rank 2 at 7: sends what is not made yet");
  EXPECT_EQ(problem("0RECV_EF0 " + first, second),
            "rank 1 at 0: is not done here, but on those of the encoder's stages that have one before them");
  EXPECT_EQ(problem(first, "0SEND_EF0 " + second),
            "rank 2 at 0: is not done here, but on those of the encoder's stages that have one behind them");
  // Messages from one rank to another are told apart by their order.
  EXPECT_EQ(problem("0EF0 0EF1 0SEND_EF1 0SEND_EF0 0RECV_EB0 0EB0 0RECV_EB1 0EB1", second),
            "rank 2 at 0: rank 1 sends 0SEND_EF1 here: the two ends disagree on the order");
  EXPECT_EQ(problem("0EF0 0SEND_EF0 0EF1 0SEND_EF1 0RECV_EB1 0EB1 0RECV_EB0 0EB0", second),
            "rank 1 at 4: rank 2 sends 0SEND_EB0 here: the two ends disagree on the order");
}

}  // namespace
}  // namespace weft
