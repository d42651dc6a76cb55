#include "weft/record/run_record.h"

#include <fstream>
#include <set>

#include <gtest/gtest.h>

#include "tests/support/meaning/random_load.h"
#include "tests/support/meaning/random_plan.h"
#include "tests/support/source_tree.h"
#include "weft/record/number_runs.h"
#include "weft/spec/model_reader.h"

namespace weft {
namespace {

RunHeader example_header() {
  return {.software = "LibTorch 2",
          .device = "cpu",
          .device_name = "",
          .date = "2026-05-04",
          .threads_per_rank = 2,
          .ranks_here = 1,
          .cores = 2};
}

StepRecord example_step(int64_t number) {
  StepRecord step{.step = number, .steps_before = number - 1, .step_ms = 12.25};
  step.ranks.push_back(
      {.peak_bytes = 4096,
       .events = {
           {.action = {ActionKind::kForward, 0, 1}, .start_ms = 0.5, .end_ms = 4, .blocked_ms = 1},
           {.action = {ActionKind::kReduceGrad, 0, -1}, .stream = Stream::kReduce, .start_ms = 4, .end_ms = 5}}});
  step.samples.push_back({.vision = {{64, 2}}, .audio = {}, .llm = {{33, 1}}});
  step.samples.push_back({.vision = {}, .audio = {}, .llm = {{17, 1}}});
  return step;
}

std::string problem_of(const std::string& text) {
  const Result<RunRecord> record = parse_run_record(text, "steps.jsonl");
  return record.ok() ? "" : record.error().message();
}

TEST(RunRecord, IsReadAsItWasWritten) {
  const std::string text = to_line(example_header()) + to_line(example_step(3)) + to_line(example_step(4));
  const Result<RunRecord> record = parse_run_record(text, "steps.jsonl");
  ASSERT_TRUE(record.ok()) << record.error().message();
  EXPECT_EQ(record->header.cores, 2);
  ASSERT_EQ(record->steps.size(), 2u);
  const StepRecord& step = record->steps.front();
  EXPECT_EQ(step.step, 3);
  EXPECT_EQ(step.steps_before, 2);
  EXPECT_DOUBLE_EQ(step.step_ms, 12.25);
  ASSERT_EQ(step.ranks.size(), 1u);
  EXPECT_EQ(step.ranks[0].peak_bytes, 4096);
  ASSERT_EQ(step.ranks[0].events.size(), 2u);
  EXPECT_EQ(to_text(step.ranks[0].events[0].action), "0F1");
  EXPECT_DOUBLE_EQ(step.ranks[0].events[0].blocked_ms, 1);
  EXPECT_EQ(step.ranks[0].events[1].stream, Stream::kReduce);
  ASSERT_EQ(step.samples.size(), 2u);
  EXPECT_EQ(step.samples[0].vision, (Segments{{64, 2}}));
  EXPECT_EQ(step.samples[1].llm, (Segments{{17, 1}}));
  EXPECT_FALSE(step.load);
}

TEST(RunRecord, ALineThatWasCutOffOrChangedIsNamed) {
  const std::string header = to_line(example_header()), step = to_line(example_step(1));
  const std::string whole = header + step;
  for (size_t length = header.size() + 1; length < whole.size(); ++length)
    EXPECT_NE(problem_of(whole.substr(0, length)).find("steps.jsonl:2: is cut off"), std::string::npos) << length;
  std::string changed = whole;
  changed[whole.find("12.25")] = '9';
  EXPECT_NE(problem_of(changed).find("steps.jsonl:2: is cut off or was changed"), std::string::npos);
  EXPECT_NE(problem_of(step).find("before the line that says what ran"), std::string::npos);
  EXPECT_NE(problem_of(whole + step).find("has step 1 again"), std::string::npos);
}

TEST(RunRecord, StepsByOtherPlansAreLeftOutAndCounted) {
  RunHeader first = example_header(), second = example_header();
  first.plan = "first";
  second.plan = "second";
  const std::string text =
      to_line(first) + to_line(example_step(1)) + to_line(example_step(2)) + to_line(second) + to_line(example_step(3));
  const auto steps_of = [](const std::string& lines) {
    const Result<RunRecord> record = parse_run_record(lines, "steps.jsonl");
    EXPECT_TRUE(record.ok()) << record.error().message();
    std::vector<int64_t> steps;
    for (const StepRecord& step : record->steps) steps.push_back(step.step);
    steps.push_back(-record->num_other_plan_steps);
    return steps;
  };
  EXPECT_EQ(steps_of(text), (std::vector<int64_t>{3, -2}));
  EXPECT_EQ(steps_of(text + to_line(first) + to_line(example_step(4))), (std::vector<int64_t>{1, 2, 4, -1}));
  // A step of another plan is still a step that was done.
  EXPECT_NE(problem_of(text + to_line(first) + to_line(example_step(3))).find("has step 3 again"), std::string::npos);
  // Files of older versions do not say which plan.
  EXPECT_EQ(steps_of(to_line(example_header()) + to_line(example_step(1)) + to_line(example_header()) +
                     to_line(example_step(2))),
            (std::vector<int64_t>{1, 2, 0}));
}

TEST(RunRecord, PlansOfEqualWorkHaveEqualHashesWhateverWasPredicted) {
  const Model model = *read_model_file(source_tree() / "scenarios/models/tiny-vl.json");
  const Plan plan = random_plan(model, 1);
  Plan repriced = plan;
  repriced.cluster.name += " with another link";
  repriced.model.name += "-copy";
  repriced.batches = 3;
  repriced.batch_seed += 1;
  EXPECT_EQ(work_hash(repriced), work_hash(plan));
  std::set<std::string> hashes;
  for (uint64_t seed = 1; seed <= 8; ++seed) hashes.insert(work_hash(random_plan(model, seed)));
  EXPECT_EQ(hashes.size(), 8u);
}

TEST(RunRecord, AStepThatIsDoneAgainIsTakenAway) {
  const std::string header = to_line(example_header());
  const std::string text = header + to_line(example_step(1)) + to_line(example_step(5)) + to_line(example_step(9));
  EXPECT_EQ(rewound(text, 5), header + to_line(example_step(1)) + to_line(example_step(5)));
  // What a killed run has not finished goes, too.
  EXPECT_EQ(rewound(text.substr(0, text.size() - 3), 9), rewound(text, 5));
}

TEST(RunRecord, AtMostSeventeenStepsAreWrittenEvenlyAndTheLast) {
  for (const int64_t steps : {1, 5, 16, 17, 30, 1000, 123'457}) {
    std::vector<int64_t> recorded;
    for (int64_t step = 0; step < steps; ++step) {
      if (is_recorded(step, steps, 100)) recorded.push_back(step);
    }
    EXPECT_EQ(recorded.front(), 0);
    EXPECT_EQ(recorded.back(), steps - 1);
    EXPECT_LE(recorded.size(), 17u);
    EXPECT_GE(recorded.size(), static_cast<size_t>(std::min<int64_t>(steps, 16)));
    for (size_t i = 1; i < recorded.size(); ++i) EXPECT_LE(recorded[i] - recorded[i - 1], steps / 16 + 1);
  }
  int64_t count = 0;
  for (int64_t step = 0; step < 1000; ++step) count += is_recorded(step, 1000, 300'000) ? 1 : 0;
  EXPECT_LE(count, 4);
}

TEST(RunRecord, AFolderWithoutStepsSaysWhatToDo) {
  const std::filesystem::path folder = std::filesystem::temp_directory_path() / "weft_run_record_test";
  std::filesystem::create_directories(folder);
  std::filesystem::remove(folder / kRunRecordName);
  EXPECT_NE(read_run_record(folder).error().message().find("has no steps.jsonl"), std::string::npos);
  std::ofstream(folder / kRunRecordName) << to_line(example_header());
  EXPECT_NE(read_run_record(folder).error().message().find("has no step"), std::string::npos);
  std::filesystem::remove_all(folder);
  EXPECT_NE(read_run_record(folder).error().message().find("is no folder"), std::string::npos);
}

TEST(NumberRuns, AreShortForEqualStepsAndExact) {
  EXPECT_EQ(runs_of({5, 6, 7, 8}).dump(), "[5,4,1]");
  EXPECT_EQ(runs_of({4, 4, 4, 0, 2, 4}).dump(), "[4,3,0,0,3,2]");
  const auto read = [](const Json& runs, IntegerRange range = {0, int64_t{1} << 47}) {
    NumberBudget budget{100};
    return numbers_in(runs, range, budget);
  };
  for (const std::vector<int64_t>& numbers :
       {std::vector<int64_t>{}, {3}, {9, 1}, {1, 2, 4, 8, 16}, {7, 7, 6, 5, 100, 100}, {1, int64_t{1} << 47, 5}})
    EXPECT_EQ(read(runs_of(numbers)), numbers);
  for (const char* bad : {"[0, 101, 1]", "[0, 1]", "[0, -1, 1]", "[0, 2, \"x\"]", "[18446744073709551615, 1, 0]",
                          "[1, 18446744073709551615, 0]", "[5, 7, -1]"})
    EXPECT_FALSE(read(Json::parse(bad))) << bad;
  EXPECT_FALSE(read(Json::parse("[0, 11, 1]"), {0, 9})) << "the last is out of range";
}

TEST(NumberRuns, ListsShareOneBudget) {
  NumberBudget budget{100};
  EXPECT_TRUE(numbers_in(Json::parse("[0, 60, 1]"), {0, 1000}, budget));
  EXPECT_TRUE(numbers_in(Json::parse("[0, 40, 1]"), {0, 1000}, budget));
  EXPECT_EQ(budget.left, 0);
  EXPECT_FALSE(numbers_in(Json::parse("[0, 1, 1]"), {0, 1000}, budget));
  EXPECT_LT(budget.left, 0);
  EXPECT_FALSE(numbers_in(Json::parse("[0, 1, 1]"), {0, 1000}, budget)) << "it stays used up";
}

// Three numbers of a file stand for any count, and a line may have any number of them.
TEST(RunRecord, LoadsBeyondTheBudgetAreLeftOutAndMarked) {
  StepRecord step = example_step(1), next = example_step(2);
  step.load = RecordedLoad{};
  next.load = RecordedLoad{};
  for (int64_t list = 0; list < 3; ++list)
    step.load->assignment.llm.push_back({std::vector<int64_t>(kMostRecordedNumbers / 3 + 1)});
  const Result<RunRecord> record =
      parse_run_record(to_line(example_header()) + to_line(step) + to_line(next), "steps.jsonl");
  ASSERT_TRUE(record.ok()) << record.error().message();
  for (const StepRecord& read : record->steps) {
    EXPECT_FALSE(read.load);
    EXPECT_TRUE(read.load_is_too_large);
  }
}

TEST(RunRecord, EventsThatCannotBeAreNamed) {
  const auto problem_with = [](double start_ms, double end_ms, double blocked_ms) {
    StepRecord step = example_step(1);
    TimelineEvent& event = step.ranks[0].events[0];
    event.start_ms = start_ms;
    event.end_ms = end_ms;
    event.blocked_ms = blocked_ms;
    return problem_of(to_line(example_header()) + to_line(step));
  };
  const std::string wanted =
      "steps.jsonl:2: ranks[0].events[0]: is not an action, its stream, start, end and time blocked, within its step";
  EXPECT_EQ(problem_with(-5, 14, 19), "") << "clocks of hosts differ a little";
  EXPECT_EQ(problem_with(0.5, 4, 4).substr(0, wanted.size()), wanted) << "blocked for longer than it took";
  EXPECT_EQ(problem_with(1e8, 1e8 + 1, 0).substr(0, wanted.size()), wanted);
  EXPECT_EQ(problem_with(-1e8, 4, 0).substr(0, wanted.size()), wanted);
}

TEST(RecordedLoad, NumbersOutOfRangeAndRepetitionsAreNamed) {
  const auto problem_with = [](const char* text) {
    NumberBudget budget{kMostRecordedNumbers};
    const Result<RecordedLoad> load = read_load(Json::parse(text), budget);
    return load.ok() ? "" : load.error().field;
  };
  EXPECT_EQ(problem_with(R"({"assignment": [[[0, 2, 1]]], "llm": [[{"samples": [16, 2, 0]}]]})"), "");
  EXPECT_EQ(problem_with(R"({"assignment": [[[0, 2, 1]]], "llm": [[{"samples": [1099511627776, 2, 0]}]]})"),
            "llm[0][0].samples");
  EXPECT_EQ(problem_with(R"({"assignment": [[[-1, 1, 0]]], "llm": []})"), "assignment");
  EXPECT_EQ(problem_with(R"({"assignment": [], "llm": [[{"media": {"audio": {"frames": 18446744073709551615}}}]]})"),
            "llm[0][0].media.audio.frames");
  EXPECT_EQ(problem_with(R"({"assignment": [], "llm": [], "routed": [[0, 0, 0, [1, 1, 0]], [0, 0, 0, [2, 1, 0]]]})"),
            "routed");
}

TEST(RecordedLoad, OfOtherTokensThanTheStepsSamplesIsToldApart) {
  const StepRecord step = example_step(1);  // 33 and 17 tokens
  RecordedLoad load;
  load.assignment.llm = {{{0}, {1}}};
  load.llm = {{{.samples = {30, 3}}, {.samples = {17}}}};
  EXPECT_EQ(find_other_lengths(load, step.samples), std::nullopt);
  load.llm[0][1].samples = {1 << 30};
  EXPECT_EQ(find_other_lengths(load, step.samples), "a microbatch has 1073741824 tokens, but its samples have 17");
}

TEST(RecordedLoad, IsReadAsItWasWrittenAndFitsItsPlanAlone) {
  for (const char* fixture : {"qwen2_vl_untied", "qwen3_moe_norm"}) {
    const Model model = *read_model_file(source_tree() / "tests/parity/fixtures" / fixture / "config.json");
    for (uint64_t seed = 1; seed <= 8; ++seed) {
      SCOPED_TRACE(std::string(fixture) + " " + std::to_string(seed));
      const Plan plan = random_plan(model, seed, {.placements = {ModulePlacement::kInline}});
      const StepLoad load = random_load(plan, seed);
      const RecordedLoad recorded{.assignment = {.llm = load.samples, .encoders = {}},
                                  .media = {},
                                  .llm = load.llm,
                                  .encoders = {},
                                  .routed = plan.llm().ep > 1 ? load.routed : decltype(load.routed){},
                                  .balances_experts = load.balances_experts};
      EXPECT_EQ(find_misfit(plan, recorded), std::nullopt);
      NumberBudget budget{kMostRecordedNumbers};
      const Result<RecordedLoad> again = read_load(Json::parse(to_json(recorded).dump()), budget);
      ASSERT_TRUE(again.ok()) << again.error().message();
      EXPECT_EQ(to_json(*again), to_json(recorded));
      EXPECT_EQ(find_misfit(plan, *again), std::nullopt);
      const StepLoad read = again->step_load();
      ASSERT_EQ(read.llm.size(), load.llm.size());
      for (size_t rank = 0; rank < load.llm.size(); ++rank) {
        for (size_t turn = 0; turn < load.llm[rank].size(); ++turn) {
          EXPECT_EQ(read.llm[rank][turn].samples, load.llm[rank][turn].samples);
          EXPECT_EQ(read.llm[rank][turn].targets, load.llm[rank][turn].targets);
        }
      }
      RecordedLoad shorter = *again;
      shorter.llm.back().pop_back();
      EXPECT_NE(find_misfit(plan, shorter), std::nullopt);
      RecordedLoad outside = *again;
      outside.llm.front().front().targets = {1'000'000};
      EXPECT_NE(find_misfit(plan, outside), std::nullopt);
    }
  }
}

}  // namespace
}  // namespace weft
