#include <gtest/gtest.h>

#include "tests/cli/run_program.h"
#include "tests/support/source_tree.h"
#include "weft/base/json.h"

namespace weft {
namespace {

const std::string kExample = source_tree().string() + "/scenarios/balance/vl_72b_pp8.json";

Json balance_json(const std::string& file) {
  const ProgramRun run = run_weft({"balance", "--costs", file, "--json"});
  EXPECT_EQ(run.exit_status, 0) << run.err;
  EXPECT_EQ(run.err, "");
  return Json::parse(run.out);
}

std::string small(const std::string& changes) {
  Json costs = Json::parse(R"({"schedule": "1f1b", "pp": 2, "microbatches": 4, "p2p_ms": 0.5, "memory_gib": 10,
    "chain": [{"name": "a", "count": 4, "forward_ms": 1, "backward_ms": 2, "activation_gib": 1,
               "recompute_saves_gib": 0.75, "static_gib": 1}]})");
  costs.merge_patch(Json::parse(changes));
  return costs.dump();
}

TEST(BalanceVerb, PrintsTheProvenOptimum) {
  const Json json = balance_json(kExample);
  EXPECT_NEAR(json["makespan_ms"].get<double>(), 14631.4, 1e-6);
  EXPECT_EQ(json["optimal"], true);
  EXPECT_EQ(json["bound_ms"], json["makespan_ms"]);
  EXPECT_EQ(json["gap"], 0.0);
  EXPECT_FALSE(json["proof"].get<std::string>().empty());
  ASSERT_EQ(json["placement"]["vit"].size(), 8u);
  int num_vit = 0, num_llm = 0;
  for (size_t stage = 0; stage < 8; ++stage) {
    num_vit += json["placement"]["vit"][stage].get<int>();
    num_llm += json["placement"]["llm"][stage].get<int>();
    EXPECT_LE(json["recompute"]["llm"][stage], json["placement"]["llm"][stage]);
    EXPECT_LE(json["memory_gib"][stage].get<double>(), 56 + 1e-6);
  }
  EXPECT_EQ(num_vit, 32);
  EXPECT_EQ(num_llm, 80);
}

TEST(BalanceVerb, SaysTheSameTwice) {
  const ProgramRun first = run_weft({"balance", "--costs", kExample}),
                   second = run_weft({"balance", "--costs", kExample});
  EXPECT_EQ(first.exit_status, 0) << first.err;
  EXPECT_EQ(first.out, second.out);
  EXPECT_NE(first.out.find("makespan 14631.4 ms"), std::string::npos) << first.out;
}

TEST(BalanceVerb, ChunksAreListedByRank) {
  const TemporaryFolder folder;
  const Json json = balance_json(folder.write("c.json", small(R"({"schedule": "interleaved_1f1b", "vpp": 2})")));
  EXPECT_EQ(json["placement"]["a"], Json::parse("[[1, 1], [1, 1]]"));
  EXPECT_EQ(json["memory_gib"].size(), 2u) << "memory is a rank's";
}

TEST(BalanceVerb, WhatDoesNotFitIsAFailedJobThatSaysWhatWould) {
  const TemporaryFolder folder;
  // Two blocks a stage, all recomputed: the first stage holds two microbatches, 2 · 2 · 0.25 + 2 = 3.
  const ProgramRun run = run_weft({"balance", "--costs", folder.write("c.json", small(R"({"memory_gib": 2})"))});
  EXPECT_EQ(run.exit_status, 1) << run.err;
  EXPECT_EQ(run.out, "");
  EXPECT_NE(run.err.find("no placement fits into memory_gib 2"), std::string::npos) << run.err;
  EXPECT_NE(run.err.find("With pp 2 the smallest memory_gib that fits is 3;"), std::string::npos) << run.err;
  EXPECT_NE(run.err.find("the smallest larger pp that fits is 4"), std::string::npos) << run.err;
}

TEST(BalanceVerb, WrongInputIsRefused) {
  const TemporaryFolder folder;
  const auto refusal = [&](const std::string& changes) {
    const ProgramRun run = run_weft({"balance", "--costs", folder.write("c.json", small(changes))});
    EXPECT_EQ(run.exit_status, 2) << run.err;
    EXPECT_EQ(run.out, "");
    return run.err;
  };
  EXPECT_NE(refusal(R"({"pp": 5})").find("c.json: pp: is 5, but the chain has 4 blocks"), std::string::npos);
  EXPECT_NE(refusal(R"({"vpp": 2})").find("c.json: vpp: is 2, but 1f1b has one chunk"), std::string::npos);
  EXPECT_NE(refusal(R"({"p2p_ms": "fast"})").find("c.json: p2p_ms: is the text 'fast'"), std::string::npos);
  EXPECT_EQ(run_weft({"balance"}).exit_status, 2);
  EXPECT_EQ(run_weft({"balance", "--costs", "nowhere.json"}).exit_status, 2);
  EXPECT_EQ(run_weft({"balance", "--costs", kExample, "--time-limit", "0"}).exit_status, 2);
  EXPECT_EQ(run_weft({"balance", "--costs", kExample, "--time-limit", "soon"}).exit_status, 2);
}

TEST(BalanceVerb, ATimeLimitLeavesABoundAndAGap) {
  const TemporaryFolder folder;
  const std::string file = folder.write("c.json", small(R"({"schedule": "interleaved_1f1b", "pp": 8, "vpp": 2,
    "microbatches": 32, "memory_gib": 24,
    "chain": [{"name": "a", "count": 32, "forward_ms": 3.1, "backward_ms": 6.2, "activation_gib": 0.35,
               "recompute_saves_gib": 0.33, "static_gib": 0.17},
              {"name": "b", "count": 50, "forward_ms": 9.7, "backward_ms": 19.6, "activation_gib": 0.92,
               "recompute_saves_gib": 0.88, "static_gib": 0.75}]})"));
  const ProgramRun run = run_weft({"balance", "--costs", file, "--time-limit", "0.3", "--json"});
  ASSERT_EQ(run.exit_status, 0) << run.err;
  const Json json = Json::parse(run.out);
  EXPECT_LE(json["bound_ms"].get<double>(), json["makespan_ms"].get<double>());
  EXPECT_EQ(json["optimal"].get<bool>(), json["gap"].get<double>() < 1e-9);
  for (const Json& gib : json["memory_gib"]) EXPECT_LE(gib.get<double>(), 24 + 1e-6);
}

}  // namespace
}  // namespace weft
