#include <gtest/gtest.h>

#include "tests/cli/run_program.h"
#include "weft/base/document.h"

namespace weft {
namespace {

const std::string kPlan = std::string(WEFT_SOURCE_DIR) + "/scenarios/plans/llama3-8b_gpipe_tp2_pp2_dp2.json";

TEST(CheckVerb, SaysThatALegalPlanIsLegal) {
  const ProgramRun run = run_weft({"check", "--plan", kPlan});
  EXPECT_EQ(run.exit_status, 0) << run.err;
  EXPECT_NE(run.out.find("llama3-8b on 8 ranks of hgx_h200"), std::string::npos) << run.out;
  const ProgramRun json = run_weft({"check", "--plan", kPlan, "--json"});
  EXPECT_EQ(Json::parse(json.out)["legal"], true);
}

TEST(CheckVerb, NamesEveryViolationWithItsArithmetic) {
  const TemporaryFolder folder;
  Json plan = read_document(kPlan)->root;
  plan["modules"]["llm"]["tp"] = 4;
  const ProgramRun one = run_weft({"check", "--plan", folder.write("one.json", plan.dump())});
  EXPECT_EQ(one.exit_status, 2);
  EXPECT_EQ(one.out, "");
  EXPECT_NE(one.err.find("one.json: modules.llm.ranks: tp 4 × cp 1 × pp 2 × dp 2 = 16, but the module has 8 ranks"),
            std::string::npos)
      << one.err;
  plan["schedule"]["mbs"] = 3;
  const ProgramRun two = run_weft({"check", "--plan", folder.write("two.json", plan.dump())});
  EXPECT_EQ(two.exit_status, 2);
  for (const char* part : {"and 1 other fields", "  modules.llm.ranks: tp 4", "  schedule.microbatches: mbs 3"}) {
    EXPECT_NE(two.err.find(part), std::string::npos) << "no '" << part << "' in " << two.err;
  }
}

TEST(CheckVerb, ShowsHowTwoPlansDiffer) {
  const TemporaryFolder folder;
  Json plan = read_document(kPlan)->root;
  plan["schedule"]["name"] = "1f1b";
  const ProgramRun run = run_weft({"check", "--plan", kPlan, "--against", folder.write("other.json", plan.dump())});
  EXPECT_EQ(run.exit_status, 0) << run.err;
  EXPECT_EQ(run.out, "schedule.name: \"gpipe\" -> \"1f1b\"\n");
  EXPECT_EQ(run_weft({"check", "--plan", kPlan, "--against", kPlan}).out, "the plans are the same\n");
}

TEST(CheckVerb, WhatIsNotAPlanIsRefused) {
  const TemporaryFolder folder;
  EXPECT_EQ(run_weft({"check"}).exit_status, 2);
  EXPECT_EQ(run_weft({"check", "--plan", folder.write("empty.json", "{}")}).exit_status, 2);
  const ProgramRun newer = run_weft({"check", "--plan", folder.write("newer.json", "{\"weft_plan\": 7}")});
  EXPECT_EQ(newer.exit_status, 2);
  EXPECT_NE(newer.err.find("newer.json: weft_plan: is 7"), std::string::npos) << newer.err;
}

}  // namespace
}  // namespace weft
