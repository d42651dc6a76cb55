#include <filesystem>
#include <fstream>
#include <sstream>

#include <gtest/gtest.h>

#include "tests/cli/run_program.h"
#include "tests/support/source_tree.h"
#include "weft/base/json.h"

namespace weft {
namespace {

std::string contents(const std::filesystem::path& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

Json schedule_json(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), "schedule");
  arguments.push_back("--json");
  const ProgramRun run = run_weft(arguments);
  EXPECT_EQ(run.exit_status, 0) << run.err;
  EXPECT_EQ(run.err, "");
  return Json::parse(run.out);
}

void expect_refused(std::vector<std::string> arguments, const std::string& part) {
  arguments.insert(arguments.begin(), "schedule");
  const ProgramRun run = run_weft(arguments);
  EXPECT_EQ(run.exit_status, 2) << run.err;
  EXPECT_EQ(run.out, "");
  EXPECT_NE(run.err.find(part), std::string::npos) << "no '" << part << "' in " << run.err;
}

TEST(ScheduleVerb, PrintsTheKnownAnswers) {
  const Json json = schedule_json({"--name", "1f1b", "--pp", "4", "--microbatches", "8"});
  EXPECT_EQ(json["valid"], true);
  EXPECT_EQ(json["makespan_ms"], 33.0);
  EXPECT_NEAR(json["bubble_fraction"].get<double>(), 3.0 / 11.0, 1e-12);
  EXPECT_EQ(json["peak_in_flight"], (Json{4, 3, 2, 1}));
}

TEST(ScheduleVerb, WhatItWritesReadsBackToTheSameNumbers) {
  const TemporaryFolder folder;
  const std::string compute = (folder.path() / "a.csv").string(), lowered = (folder.path() / "b.csv").string();
  const std::string costs =
      folder.write("costs.json", R"({"forward_ms": [1, 2, 3, 4, 1, 2, 3, 4], "backward_input_ms": 2.5,
    "backward_weight_ms": 1.5, "p2p_ms": 0.25})");
  const Json made = schedule_json({"--name", "interleaved_1f1b", "--pp", "4", "--vpp", "2", "--microbatches", "7",
                                   "--costs", costs, "--csv", compute, "--csv-lowered", lowered});
  for (const std::string& file : {compute, lowered}) {
    const Json read = schedule_json({"--from", file, "--costs", costs});
    EXPECT_EQ(read["makespan_ms"], made["makespan_ms"]) << file;
    EXPECT_EQ(read["peak_in_flight"], made["peak_in_flight"]) << file;
  }
  EXPECT_EQ(contents(compute).find("SEND"), std::string::npos);
  EXPECT_NE(contents(lowered).find("0SEND_F0"), std::string::npos);
}

TEST(ScheduleVerb, TracesAreJsonAndPicturesAreSvg) {
  const TemporaryFolder folder;
  const std::string trace = (folder.path() / "t.json").string(), svg = (folder.path() / "t.svg").string();
  const ProgramRun run = run_weft(
      {"schedule", "--name", "zb_v", "--pp", "2", "--microbatches", "4", "--grid", "--trace", trace, "--svg", svg});
  ASSERT_EQ(run.exit_status, 0) << run.err;
  EXPECT_NE(run.out.find("r1 "), std::string::npos) << run.out;
  const Json json = Json::parse(contents(trace));
  int num_forwards = 0;
  for (const Json& event : json["traceEvents"]) num_forwards += event.value("cat", "") == "F" ? 1 : 0;
  EXPECT_EQ(num_forwards, 16) << "four stages, four microbatches";
  EXPECT_EQ(contents(svg).find("<svg"), 0u);
}

TEST(ScheduleVerb, WrongInputIsRefusedAndNothingIsWritten) {
  const TemporaryFolder folder;
  const std::string out = (folder.path() / "out.csv").string();
  expect_refused({"--name", "1f1b", "--pp", "0", "--microbatches", "8", "--csv", out}, "--pp: is '0'");
  expect_refused({"--name", "1f1b", "--pp", "4", "--microbatches", "99999999999", "--csv", out},
                 "--microbatches: is '99999999999'");
  expect_refused({"--name", "1f1b", "--pp", "4", "--microbatches", "4000000", "--csv", out},
                 "--microbatches: is 4000000");
  expect_refused({"--name", "1f1b", "--pp", "4", "--vpp", "2", "--microbatches", "8", "--csv", out},
                 "--vpp: is 2, but 1f1b has one chunk");
  expect_refused({"--name", "zbv", "--pp", "4", "--microbatches", "8", "--csv", out}, "Did you mean 'zb_v'?");
  expect_refused({"--name", "1f1b", "--pp", "4", "--csv", out}, "--microbatches: is missing");
  expect_refused({"--csv", out}, "no schedule given");
  const auto costs = [&](const std::string& text) {
    return std::vector<std::string>{"--name", "1f1b",  "--pp", "2",       "--microbatches",
                                    "3",      "--csv", out,    "--costs", folder.write("c.json", text)};
  };
  expect_refused(costs(R"({"forward_ms": [1, 2, 3], "backward_input_ms": 1, "backward_weight_ms": 1})"),
                 "c.json: forward_ms: has 3 entries");
  expect_refused(costs(R"({"forward_ms": -1, "backward_input_ms": 1, "backward_weight_ms": 1})"),
                 "c.json: forward_ms: is the number -1");
  expect_refused(costs(R"({"forward_ms": NaN})"), "c.json: forward_ms: is not valid JSON");
  EXPECT_FALSE(std::filesystem::exists(out));
}

TEST(ScheduleVerb, ABadFileShowsTheGridWithTheCellMarked) {
  const TemporaryFolder folder;
  expect_refused({"--from", folder.write("cycle.csv", "0F0,0B0,0F1,0B1\n1F1,1B1,1F0,1B0\n")},
                 "cycle.csv: rank 0, action 1: waits for ever");
  expect_refused({"--from", folder.write("cycle.csv", "0F0,0B0,0F1,0B1\n1F1,1B1,1F0,1B0\n")}, ">0B0 <");
  expect_refused({"--from", folder.write("word.csv", "0F0,zero\n")},
                 "word.csv: line 1, cell 2: 'zero' is not an action");
  expect_refused({"--from", folder.write("twice.csv", "0F0,0B0\n"), "--pp", "2"}, "--pp: is given with --from");
}

TEST(ScheduleVerb, PutsRowsIntoAPlan) {
  const TemporaryFolder folder;
  const std::string plan = (source_tree() / "scenarios/plans/qwen3-8b_zb_v_pp4.json").string();
  const std::string csv = (folder.path() / "rows.csv").string(), out = (folder.path() / "out.json").string();
  // The same stages in a loop: blocks stay in their stages, which move.
  ASSERT_EQ(run_weft({"schedule", "--name", "interleaved_1f1b", "--pp", "4", "--vpp", "2", "--microbatches", "32",
                      "--csv", csv})
                .exit_status,
            0);
  const ProgramRun run = run_weft({"schedule", "--from", csv, "--plan", plan, "--out", out});
  ASSERT_EQ(run.exit_status, 0) << run.err;
  EXPECT_NE(run.out.find("out.json: with these rows, a step is predicted to take "), std::string::npos) << run.out;
  const Json json = Json::parse(contents(out)), before = Json::parse(contents(plan));
  EXPECT_EQ(json["schedule"]["name"], "explicit");
  EXPECT_EQ(json["schedule"]["rows"].size(), 4u);
  EXPECT_EQ(json["schedule"]["rows"][3].get<std::string>().substr(0, 7), "3F0 3F1");
  EXPECT_GT(json["predicted"]["step_time_ms"].get<double>(), 0);
  for (const size_t rank : {0, 1, 2, 3})
    EXPECT_EQ(json["modules"]["llm"]["layers"][rank][1], before["modules"]["llm"]["layers"][3 - rank][1]);
  for (const char* verb : {"check", "simulate"}) {
    const ProgramRun read = run_weft({verb, "--plan", out});
    EXPECT_EQ(read.exit_status, 0) << read.err;
  }
}

TEST(ScheduleVerb, RowsThatDoNotFitThePlanAreRefusedAndTheOutputStays) {
  const TemporaryFolder folder;
  const std::string plan = (source_tree() / "scenarios/plans/llama3-8b_gpipe_tp2_pp2_dp2.json").string();
  const std::string out = folder.write("out.json", "precious");
  const std::string two = folder.write("two.csv", "0F0,0B0,0F1,0B1\n1F0,1B0,1F1,1B1\n");
  expect_refused({"--from", two, "--plan", plan, "--out", out},
                 "two.csv: has 2 microbatches, but the plan's schedule.microbatches is 16");
  expect_refused({"--from", folder.write("one.csv", "0F0,0B0\n"), "--plan", plan, "--out", out},
                 "one.csv: has 1 rank, but the plan's modules.llm.pp is 2");
  expect_refused(
      {"--from", folder.write("four.csv", "0F0,2F0,2B0,0B0\n1F0,3F0,3B0,1B0\n"), "--plan", plan, "--out", out},
      "four.csv: has 4 stages, but the plan's layers lie in 2");
  expect_refused({"--from", two, "--plan", plan}, "--out: is missing, but --plan is given");
  expect_refused({"--from", two, "--out", out}, "--plan: is missing, but --out is given");
  expect_refused({"--name", "1f1b", "--pp", "2", "--microbatches", "2", "--plan", plan, "--out", out},
                 "--plan: is given without --from");
  EXPECT_EQ(contents(out), "precious");
}

}  // namespace
}  // namespace weft
