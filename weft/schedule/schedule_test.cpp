#include "weft/schedule/schedule.h"

#include <chrono>

#include <gtest/gtest.h>

#include "weft/schedule/csv.h"
#include "weft/schedule/explicit_rows.h"
#include "weft/schedule/generators.h"
#include "weft/schedule/lowering.h"
#include "weft/schedule/step_end.h"
#include "weft/schedule/timeline.h"
#include "weft/schedule/validate.h"

namespace weft {
namespace {

struct Case {
  ScheduleName name;
  int64_t pp;
  int64_t vpp;
  int64_t microbatches;
};

std::string text_of(const Case& c) {
  return name_of(c.name) + " pp " + std::to_string(c.pp) + " vpp " + std::to_string(c.vpp) + " m " +
         std::to_string(c.microbatches);
}

Schedule generate(const Case& c) {
  const Result<Schedule> schedule =
      generate_schedule(c.name, {.pp = c.pp, .vpp = c.vpp, .microbatches = c.microbatches});
  EXPECT_TRUE(schedule.ok()) << text_of(c) << ": " << schedule.error().message();
  return *schedule;
}

/// Every schedule for all pp ≤ 8, vpp ≤ 4 and microbatches ≤ 32.
std::vector<Case> all_cases() {
  std::vector<Case> cases;
  for (int64_t pp = 1; pp <= 8; ++pp) {
    for (int64_t m = 1; m <= 32; ++m) {
      for (const ScheduleName name : {ScheduleName::kGpipe, ScheduleName::k1f1b, ScheduleName::kZbH1})
        cases.push_back({name, pp, 1, m});
      for (int64_t vpp = 2; vpp <= 4; ++vpp) cases.push_back({ScheduleName::kInterleaved1f1b, pp, vpp, m});
      cases.push_back({ScheduleName::kZbV, pp, 2, m});
    }
  }
  return cases;
}

TEST(Schedule, EveryGeneratedScheduleIsValidBeforeAndAfterLowering) {
  for (const Case& c : all_cases()) {
    const Schedule schedule = generate(c);
    auto problem = find_problem(schedule);
    ASSERT_FALSE(problem) << text_of(c) << "\n" << show_problem(schedule, *problem);
    const Result<Schedule> lowered = lower_schedule(schedule);
    ASSERT_TRUE(lowered.ok()) << text_of(c) << ": " << lowered.error().message();
    problem = find_problem(*lowered);
    ASSERT_FALSE(problem) << text_of(c) << "\n" << show_problem(*lowered, *problem);
  }
}

TEST(Schedule, TheUsualOneHasAsManyChunksAsAreAskedFor) {
  for (const ScheduleKind& kind : schedule_kinds()) {
    EXPECT_EQ(&kind_of(kind.id), &kind);
    EXPECT_EQ(*parse_schedule_name(kind.name), kind.id);
  }
  EXPECT_EQ(usual_schedule(1), ScheduleName::k1f1b);
  EXPECT_EQ(usual_schedule(2), ScheduleName::kInterleaved1f1b);
  EXPECT_EQ(usual_schedule(2 * kMostVpp), ScheduleName::kInterleaved1f1b) << "the nearest, which is then refused";
}

TEST(Schedule, LoopAndVPlacementPutStagesWhereTheDesignSays) {
  EXPECT_EQ(place_stages(Placement::kLoop, 4, 2), (std::vector<int32_t>{0, 1, 2, 3, 0, 1, 2, 3}));
  EXPECT_EQ(place_stages(Placement::kV, 4, 2), (std::vector<int32_t>{0, 1, 2, 3, 3, 2, 1, 0}));
  for (const Placement placement : {Placement::kLoop, Placement::kV}) {
    for (int32_t stage = 0; stage < 8; ++stage)
      EXPECT_EQ(stage_at(placement, 4, place_of_stage(placement, 4, stage)), stage);
  }
}

TEST(Schedule, VirtualStagesFollowLayersPerStage) {
  // 16 layers, pp 4, two layers a stage: vpp 2, and rank 0 holds layers 1-2 and 9-10.
  EXPECT_EQ(*virtual_stages(16, 4, 2), 2);
  const Schedule schedule = generate({ScheduleName::kInterleaved1f1b, 4, 2, 4});
  std::vector<int32_t> layers;
  for (const int32_t stage : stages_of_rank(schedule, 0)) {
    layers.push_back(2 * stage + 1);
    layers.push_back(2 * stage + 2);
  }
  EXPECT_EQ(layers, (std::vector<int32_t>{1, 2, 9, 10}));
  EXPECT_FALSE(virtual_stages(16, 3, 2).ok());
  EXPECT_FALSE(virtual_stages(0, 1, 1).ok());
}

TEST(Schedule, TheOneForwardOneBackwardRowsAreTheTextbookOnes) {
  EXPECT_EQ(to_csv(generate({ScheduleName::k1f1b, 2, 1, 3})), "0F0,0F1,0B0,0F2,0B1,0B2\n1F0,1B0,1F1,1B1,1F2,1B2\n");
  EXPECT_EQ(to_csv(generate({ScheduleName::kZbH1, 2, 1, 2})), "0F0,0F1,0I0,0W0,0I1,0W1\n1F0,1I0,1F1,1I1,1W0,1W1\n");
}

TEST(Schedule, CsvRoundTripsInBothForms) {
  for (const Case& c : {Case{ScheduleName::kInterleaved1f1b, 4, 3, 7}, Case{ScheduleName::kZbV, 3, 2, 5},
                        Case{ScheduleName::kGpipe, 1, 1, 1}}) {
    const Schedule schedule = generate(c);
    EXPECT_EQ(*parse_csv(to_csv(schedule), "f.csv"), schedule) << text_of(c);
    const Schedule lowered = *lower_schedule(schedule);
    EXPECT_EQ(*parse_csv(to_csv(lowered), "f.csv"), lowered) << text_of(c);
  }
  EXPECT_EQ(parse_csv("0F0,,0B0\r\n", "f.csv")->rows[0].size(), 2u) << "empty cells are idle time";
}

TEST(Schedule, BadCsvNamesLineAndCell) {
  const auto message = [](const std::string& text) { return parse_csv(text, "f.csv").error().message(); };
  EXPECT_NE(message("0F0,0X0\n").find("f.csv: line 1, cell 2: '0X0' is not an action"), std::string::npos);
  EXPECT_NE(message("0F0\n0B0\n").find("line 2, cell 1: stage 0 is on rank 0 and on rank 1"), std::string::npos);
  EXPECT_NE(message("1F0\n").find("has a stage 1 but no stage 0"), std::string::npos);
  EXPECT_NE(message("0F99999\n").find("has a microbatch 99999 but only 1 actions"), std::string::npos);
  EXPECT_NE(message("0F99999999999\n").find("is not an action"), std::string::npos);
  EXPECT_NE(message("\n").find("holds no actions"), std::string::npos);
  EXPECT_NE(message("0F0,0B0\n\n1F0,1B0\n").find("f.csv: line 2: holds no actions"), std::string::npos);
  EXPECT_EQ(parse_csv("0F0,0B0\n\n\n", "f.csv")->num_ranks(), 1) << "blank lines at the end are no ranks";
  EXPECT_NE(message("0UPDATE\n").find("holds no microbatch"), std::string::npos);
  EXPECT_NE(message("0F-1\n").find("is not an action"), std::string::npos);
}

TEST(Schedule, NumbersThatMakeTablesEnormousAreRefused) {
  const auto message = [](const std::string& text) { return parse_csv(text, "f.csv").error().message(); };
  EXPECT_NE(message("0F0,0B0,0F2147483647\n").find("line 1, cell 3: '0F2147483647' is not an action"),
            std::string::npos);
  EXPECT_NE(message("2147483647F0,0B0\n").find("'2147483647F0' is not an action"), std::string::npos);
  EXPECT_NE(message("0F2147483646\n").find("has a microbatch 2147483646 but only 1 actions"), std::string::npos);
  EXPECT_EQ(message("0F0,1F1,2F2\n"),
            "f.csv: has a microbatch 2 but only 3 actions; 3 stages × 3 microbatches need a forward each. Correct the "
            "number, or give every stage its actions of every microbatch.");
  EXPECT_TRUE(parse_csv("0F0,1F1,0F1,1F0\n", "f.csv").ok()) << "the validator says which are missing";
}

/// Every rank but one waits at any time: F of all stages and B of all of them back, microbatch after microbatch.
Schedule serial_rows(int32_t num_ranks, int32_t num_microbatches) {
  Schedule schedule{
      .num_microbatches = num_microbatches, .rank_of_stage = place_stages(Placement::kLoop, num_ranks, 1), .rows = {}};
  for (int32_t rank = 0; rank < num_ranks; ++rank) {
    auto& row = schedule.rows.emplace_back();
    for (int32_t m = 0; m < num_microbatches; ++m) {
      row.push_back({ActionKind::kForward, rank, m});
      row.push_back({ActionKind::kBackward, rank, m});
    }
  }
  return schedule;
}

TEST(Schedule, SerialRowsTakeTimeByTheirActionsAlone) {
  // Looking at all ranks in every round would take minutes.
  const auto start = std::chrono::steady_clock::now();
  const Schedule schedule = serial_rows(16'000, 20);
  EXPECT_FALSE(find_problem(schedule));
  const Result<Schedule> lowered = lower_schedule(schedule);
  ASSERT_TRUE(lowered.ok());
  EXPECT_FALSE(find_problem(*lowered));
  EXPECT_EQ(num_actions(*lowered), num_actions(schedule) + 4u * 15'999 * 20);
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(60));
}

TEST(Schedule, ExplicitRowsSayWhereStagesLie) {
  for (const Case& c : {Case{ScheduleName::kInterleaved1f1b, 4, 3, 7}, Case{ScheduleName::kZbV, 3, 2, 5},
                        Case{ScheduleName::kGpipe, 1, 1, 1}}) {
    const Schedule schedule = generate(c);
    const ExplicitRows rows = explicit_rows(*lower_schedule(schedule));
    EXPECT_EQ(rows.schedule, schedule) << text_of(c);
    EXPECT_EQ(*parse_explicit_rows(to_texts(rows)), rows) << text_of(c);
    EXPECT_EQ(rows.splits_backward, c.name == ScheduleName::kZbV);
    for (int32_t stage = 0; stage < schedule.num_stages(); ++stage) {
      const StagePlace place = place_of_stage(kind_of(c.name).placement, static_cast<int32_t>(c.pp), stage);
      EXPECT_EQ(rows.places[static_cast<size_t>(stage)].rank, place.rank);
      EXPECT_EQ(rows.places[static_cast<size_t>(stage)].chunk, place.chunk);
    }
  }
  const ExplicitRows odd = *parse_explicit_rows(std::vector<std::string>{"1F0  2F0 2B0 1B0", "0F0 0B0"});
  EXPECT_EQ(odd.chunks, (std::vector<int64_t>{2, 1}));
  EXPECT_EQ(odd.schedule.rank_of_stage, (std::vector<int32_t>{1, 0, 0}));
  EXPECT_EQ(odd.places[2].chunk, 1);
}

TEST(Schedule, BadExplicitRowsNameRowAndAction) {
  const auto message = [](const std::vector<std::string>& rows) { return parse_explicit_rows(rows).error().message(); };
  EXPECT_NE(message({"0F0 0B0", "1F0 1X0"}).find("rows[1], action 2: '1X0' is not an action"), std::string::npos);
  EXPECT_NE(message({"0F0 0SEND_F0 0B0"}).find("rows[0], action 2: 0SEND_F0 is not F, B, I or W"), std::string::npos);
  EXPECT_NE(message({"0F0", "0B0"}).find("rows[1], action 1: stage 0 is on rank 0 and on rank 1"), std::string::npos);
  EXPECT_NE(message({"0F0 0B0", ""}).find("rows[1]: holds no actions"), std::string::npos);
  EXPECT_NE(message({}).find("holds no actions"), std::string::npos);
}

TEST(Schedule, ImpossibleShapesNameTheFlag) {
  const auto message = [](ScheduleName name, PipelineShape shape) {
    return generate_schedule(name, shape).error().message();
  };
  EXPECT_NE(message(ScheduleName::k1f1b, {.pp = 0}).find("pp: is 0"), std::string::npos);
  EXPECT_NE(message(ScheduleName::k1f1b, {.pp = 2, .vpp = 2}).find("vpp: is 2, but 1f1b has one chunk a rank"),
            std::string::npos);
  EXPECT_NE(message(ScheduleName::kZbV, {.pp = 2, .vpp = 3}).find("zb_v has exactly 2"), std::string::npos);
  EXPECT_NE(message(ScheduleName::kInterleaved1f1b, {.pp = 2}).find("needs at least 2 chunks"), std::string::npos);
  EXPECT_NE(message(ScheduleName::kGpipe, {.pp = 2, .microbatches = 0}).find("microbatches: is 0"), std::string::npos);
  EXPECT_NE(message(ScheduleName::kGpipe, {.pp = 16'384, .microbatches = 1 << 20}).find("actions"), std::string::npos);
  EXPECT_EQ(message(ScheduleName::k1f1b, {.pp = 64, .microbatches = 1'000'000}),
            "microbatches: 1000000 × pp 64 × vpp 1 gives more than 30,000,000 actions. Lower microbatches, pp or vpp.");
  EXPECT_TRUE(generate_schedule(ScheduleName::k1f1b, {.pp = 64, .microbatches = 16'384}).ok());
  EXPECT_NE(parse_schedule_name("1f1v").error().message().find("Did you mean '1f1b'?"), std::string::npos);
}

/// The problem that a small schedule, given as CSV, has.
std::string problem_of(const std::string& csv) {
  const Schedule schedule = *parse_csv(csv, "f.csv");
  const auto problem = find_problem(schedule);
  return problem ? "rank " + std::to_string(problem->rank) + " at " + std::to_string(problem->position) + ": " +
                       problem->message
                 : "";
}

TEST(Validator, FindsEachKindOfMistake) {
  EXPECT_EQ(problem_of("0F0,0B0\n1F0,1B0\n"), "");
  EXPECT_EQ(problem_of("0F0,0F0,0B0\n1F0,1B0\n"), "rank 0 at 1: comes twice");
  EXPECT_EQ(problem_of("0F0,0B0\n1F0\n"), "rank 1 at 1: 1B0 is missing");
  EXPECT_EQ(problem_of("0F0,0I0\n1F0,1B0\n"), "rank 0 at 2: 0W0 is missing");
  EXPECT_EQ(problem_of("0F0,0B0,0I0,0W0\n1F0,1B0\n"),
            "rank 0 at 4: stage 0, microbatch 0 has both B and a split backward");
  EXPECT_EQ(problem_of("0B0,0F0\n1F0,1B0\n"), "rank 0 at 0: runs before its forward");
  EXPECT_EQ(problem_of("0F0,0W0,0I0\n1F0,1B0\n"), "rank 0 at 1: runs before its input gradient (I)");
  EXPECT_EQ(problem_of("0F0,0F1,0REDUCE_GRAD,0B0,0B1\n1F0,1B0,1F1,1B1\n"),
            "rank 0 at 2: reduces after only 0 of 2 weight gradients");
  EXPECT_EQ(problem_of("0F0,0B0,0REDUCE_GRAD,0UPDATE\n1F0,1B0,1REDUCE_GRAD,1UPDATE\n"), "");
}

TEST(Validator, FindsContradictingOrders) {
  // Each rank waits for what the other does later.
  EXPECT_EQ(problem_of("0F0,0B0,0F1,0B1\n1F1,1B1,1F0,1B0\n"), "rank 0 at 1: waits for ever: the rows deadlock");
  // The same with transfers: both ranks send first, and channels have no buffer.
  EXPECT_EQ(problem_of("0F0,0SEND_F0,0F1,0SEND_F1,0RECV_B0,0B0,0RECV_B1,0B1\n"
                       "1RECV_F0,1F0,1B0,1SEND_B0,1RECV_F1,1F1,1B1,1SEND_B1\n"),
            "rank 0 at 3: waits for ever: the rows deadlock");
}

TEST(Validator, FindsChannelMistakes) {
  EXPECT_EQ(problem_of("0F0,0SEND_F0,0RECV_B0,0B0\n1RECV_F0,1F0,1B0,1SEND_B0\n"), "");
  EXPECT_EQ(problem_of("0F0,0RECV_B0,0B0\n1RECV_F0,1F0,1B0,1SEND_B0\n"), "rank 1 at 0: rank 0 never sends it");
  EXPECT_EQ(problem_of("0F0,0SEND_F0,0RECV_B0,0B0\n1F0,1RECV_F0,1B0,1SEND_B0\n"),
            "rank 1 at 0: runs before its input is received");
  EXPECT_EQ(problem_of("0SEND_F0,0F0,0RECV_B0,0B0\n1RECV_F0,1F0,1B0,1SEND_B0\n"),
            "rank 0 at 0: sends what is not made yet");
  EXPECT_EQ(problem_of("0F0,0SEND_F0,0F1,0SEND_F1,0RECV_B0,0B0,0RECV_B1,0B1\n"
                       "1RECV_F1,1RECV_F0,1F0,1F1,1B0,1SEND_B0,1B1,1SEND_B1\n"),
            "rank 1 at 0: rank 0 sends 0SEND_F0 here: the two ends disagree on the order");
}

TEST(Validator, ShowsTheGridWithTheCellMarked) {
  const Schedule schedule = *parse_csv("0F0,0B0\n1B0,1F0\n", "f.csv");
  const std::string shown = show_problem(schedule, *find_problem(schedule));
  EXPECT_NE(shown.find("rank 1, action 0: 1B0 runs before its forward"), std::string::npos) << shown;
  EXPECT_NE(shown.find(">1B0 <"), std::string::npos) << shown;
}

TEST(StepEnd, ReducesAStageAfterItsLastGradientAndUpdatesAtTheEnd) {
  EXPECT_EQ(to_csv(with_step_end(generate({ScheduleName::kZbV, 1, 2, 1}))),
            "0F0,1F0,1I0,1W0,1REDUCE_GRAD,0I0,0W0,0REDUCE_GRAD,1UPDATE,0UPDATE\n");
  for (const Case& c : {Case{ScheduleName::k1f1b, 4, 1, 6}, Case{ScheduleName::kInterleaved1f1b, 3, 2, 5},
                        Case{ScheduleName::kZbH1, 4, 1, 2}}) {
    const Schedule schedule = with_step_end(generate(c));
    EXPECT_FALSE(find_problem(schedule)) << text_of(c);
    const Result<Schedule> lowered = lower_schedule(schedule);
    ASSERT_TRUE(lowered.ok());
    EXPECT_FALSE(find_problem(*lowered)) << text_of(c);
    EXPECT_EQ(num_actions(schedule), num_actions(generate(c)) + 2 * static_cast<size_t>(schedule.num_stages()));
  }
}

TEST(Lowering, ContradictingOrdersAreRefused) {
  const Result<Schedule> lowered = lower_schedule(*parse_csv("0F0,0B0,0F1,0B1\n1F1,1B1,1F0,1B0\n", "f.csv"));
  ASSERT_FALSE(lowered.ok());
  EXPECT_NE(lowered.error().message().find("rank 0: deadlock: 0B0 waits for ever"), std::string::npos)
      << lowered.error().message();
}

TEST(Timeline, APictureIsXmlWhateverItsTitle) {
  const std::string svg = to_svg({}, "a<b>&\x1b[31m\n\xff");
  EXPECT_NE(svg.find("a&lt;b&gt;&amp;\\x1b[31m\\x0a\\xff"), std::string::npos) << svg;
  EXPECT_EQ(svg.find('\x1b'), std::string::npos);
}

}  // namespace
}  // namespace weft
