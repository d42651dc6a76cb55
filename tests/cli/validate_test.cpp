#include <gtest/gtest.h>

#include "tests/cli/run_program.h"
#include "tests/support/draws.h"
#include "weft/base/document.h"

namespace weft {
namespace {

const std::string kHeader =
    "num_gpus,global_batch,micro_batch,hidden_size,num_heads,num_layers,sequence_length,tp,dp,pp,iteration_ms\n";

/// Made up: times of runs that nobody measured, in the right order of magnitude.
const std::string kTable = kHeader +
                           "8,16,1,2048,16,8,1024,1,8,1,420\n"
                           "8,16,1,2048,16,8,1024,2,4,1,460\n"
                           "8,16,2,2048,16,8,1024,4,1,2,560\n"
                           "8,16,2,2048,16,8,1024,8,1,1,500\n";

TEST(ValidateVerb, ComparesWithPublishedRuns) {
  if (kIsSanitized) GTEST_SKIP() << "left to the optimised build: fits are made as often as there are models";
  const ProgramRun run = run_weft({"validate", "--published", "--json"});
  ASSERT_EQ(run.exit_status, 0) << run.err;
  const Json json = Json::parse(run.out);
  EXPECT_EQ(json["cluster"], "dgx_a100_80g");
  EXPECT_LE(json["mean_error_percent"].get<double>(), 3);
  EXPECT_LE(json["max_error_percent"].get<double>(), 7);
  EXPECT_LE(json["leave_one_out_percent"].get<double>(), 5);
  ASSERT_EQ(json["rows"].size(), 8u);
  for (const Json& row : json["rows"]) {
    EXPECT_NEAR(row["error_percent"].get<double>(),
                100 * (row["predicted_ms"].get<double>() / row["measured_ms"].get<double>() - 1), 1e-6);
  }
  const Json& published = json["published"];
  EXPECT_GE(published["runs"].get<int>(), 140);
  EXPECT_LE(published["left_out"]["mean_error_percent"].get<double>(), 10);
  EXPECT_LE(published["left_out"]["max_error_percent"].get<double>(), 25);
  for (const Json& table : published["tables"]) {
    EXPECT_FALSE(table["not_alike"].get<std::string>().empty()) << table["source"];
    EXPECT_GE(table["rows"].size(), 2u) << table["source"];
  }
  ASSERT_EQ(json["memory"].size(), 4u);
  for (const Json& memory : json["memory"]) {
    for (const auto& [part, gib] : memory["published"].items())
      EXPECT_NEAR(memory["predicted"][part].get<double>(), gib.get<double>(), 0.006) << memory["name"] << " " << part;
  }
}

TEST(ValidateVerb, PrintsATable) {
  if (kIsSanitized) GTEST_SKIP() << "left to the optimised build: fits are made as often as there are models";
  const ProgramRun run = run_weft({"validate", "--published"});
  EXPECT_EQ(run.exit_status, 0) << run.err;
  EXPECT_EQ(run.err, "") << "progress is for terminals";
  for (const char* part :
       {"run on dgx_a100_80g", "175B, full recomputation",
        "dgx_a100_80g (calibrated to these runs and others): mean error ",
        "each published model by a fit to the others: mean error ", "GiB a device", "torchtitan_eager on dgx_a100_80g",
        "model left out", "each model by a fit to the others: "}) {
    EXPECT_NE(run.out.find(part), std::string::npos) << "no '" << part << "' in " << run.out;
  }
}

TEST(ValidateVerb, CalibratesToATableAndTheClusterItWritesIsReadBack) {
  const TemporaryFolder folder;
  const std::string table = folder.write("runs.csv", kTable);
  const std::string fitted = folder.path() / "mine.yaml";
  const ProgramRun run = run_weft({"validate", "--measurements", table, "--model-family", "gpt", "--cluster",
                                   "dgx_a100_80g", "--folds", "2", "--calibrate-to", fitted, "--json"});
  ASSERT_EQ(run.exit_status, 0) << run.err;
  const Json before = Json::parse(run.out);
  EXPECT_EQ(before["rows"].size(), 4u);
  EXPECT_EQ(before["cross_validation_rows"].size(), 4u);
  EXPECT_NE(before["warnings"].dump().find("--folds is 2, but the runs are of 1 model only"), std::string::npos);
  EXPECT_FALSE(before.contains("leave_one_out_percent"));
  const ProgramRun again =
      run_weft({"validate", "--measurements", table, "--model-family", "gpt", "--cluster", fitted, "--json"});
  ASSERT_EQ(again.exit_status, 0) << again.err;
  const Json after = Json::parse(again.out);
  EXPECT_LT(after["mean_error_percent"].get<double>(), before["mean_error_percent"].get<double>());
  const ProgramRun described = run_weft({"describe", "--cluster", fitted});
  EXPECT_EQ(described.exit_status, 0) << described.err;
}

TEST(ValidateVerb, FoldsLeaveWholeModelsOut) {
  const TemporaryFolder folder;
  // The second model's times are nobody's: only a fit that has seen them comes near.
  const std::string wide = "8,16,1,4096,32,8,1024,1,8,1,12000\n8,16,1,4096,32,8,1024,2,4,1,13000\n";
  const std::string table = folder.write("runs.csv", kTable + wide);
  const ProgramRun run = run_weft({"validate", "--measurements", table, "--model-family", "gpt", "--cluster",
                                   "dgx_a100_80g", "--folds", "2", "--json"});
  ASSERT_EQ(run.exit_status, 0) << run.err;
  const Json json = Json::parse(run.out);
  EXPECT_EQ(json["warnings"].dump().find("--folds"), std::string::npos) << json["warnings"];
  const Json& rows = json["cross_validation_rows"];
  ASSERT_EQ(rows.size(), 6u);
  for (const size_t row : {4u, 5u}) EXPECT_LT(rows[row]["error_percent"].get<double>(), -50) << rows[row];
}

TEST(ValidateVerb, SecondsInPlaceOfMillisecondsAreSuspected) {
  const TemporaryFolder folder;
  const std::string table = folder.write("runs.csv", kHeader + "8,16,1,2048,16,8,1024,1,8,1,0.42\n");
  const ProgramRun run =
      run_weft({"validate", "--measurements", table, "--model-family", "gpt", "--cluster", "dgx_a100_80g"});
  EXPECT_EQ(run.exit_status, 0) << run.err;
  EXPECT_NE(run.out.find("are these seconds?"), std::string::npos) << run.out;
}

TEST(ValidateVerb, WrongInputIsToldInOneLine) {
  const TemporaryFolder folder;
  const std::string table = folder.write("runs.csv", kTable);
  const std::string bad = folder.write("bad.csv", kHeader + "8,16,1,2048,16,8,1024,1,8,1,fast\n");
  const std::string uneven = folder.write("uneven.csv", kHeader + "16,16,1,2048,16,8,1024,1,8,1,5\n");
  const std::vector<std::pair<std::vector<std::string>, std::string>> cases = {
      {{"validate"},
       "validate: nothing to compare with. Give --plan FILE and --run DIR, --runs DIR ..., --published or "
       "--measurements FILE."},
      {{"validate", "--measurements", table}, "--cluster: is missing"},
      {{"validate", "--measurements", table, "--cluster", "dgx_a100_80g"}, "--model-family: is missing"},
      {{"validate", "--measurements", table, "--cluster", "dgx_a100_80g", "--model-family", "bert"},
       "--model-family: is 'bert', gpt is the only one"},
      {{"validate", "--published", "--cluster", "dgx_h100", "--fit-to", "f.yaml"},
       "--fit-to: needs all published tables"},
      {{"validate", "--published", "--folds", "3"}, "--folds: is given without measurements"},
      {{"validate", "--measurements", table, "--cluster", "dgx_a100_80g", "--model-family", "gpt", "--folds", "9"},
       "--folds: is 9, but there are only 4 runs"},
      {{"validate", "--measurements", bad, "--cluster", "dgx_a100_80g", "--model-family", "gpt"},
       "bad.csv: line 2, iteration_ms: is 'fast', a time in milliseconds above 0 is needed"},
      {{"validate", "--measurements", uneven, "--cluster", "dgx_a100_80g", "--model-family", "gpt"},
       "uneven.csv: line 2: num_gpus: is 16, but tp 1 x dp 8 x pp 1 = 8"},
      {{"validate", "--measurements", "/nowhere.csv", "--cluster", "dgx_a100_80g", "--model-family", "gpt"},
       "/nowhere.csv"},
      {{"validate", "--published", "--cluster", "dgx_a100_80"}, "Did you mean 'dgx_a100_80g'?"},
  };
  for (const auto& [arguments, part] : cases) {
    const ProgramRun run = run_weft(arguments);
    EXPECT_EQ(run.exit_status, 2) << part;
    EXPECT_EQ(run.out, "") << part;
    EXPECT_NE(run.err.find(part), std::string::npos) << "no '" << part << "' in " << run.err;
    EXPECT_EQ(run.err.find('\n'), run.err.size() - 1) << "one line: " << run.err;
  }
}

TEST(ValidateVerb, AFileThatCannotBeWrittenIsTold) {
  const TemporaryFolder folder;
  const ProgramRun run = run_weft({"validate", "--measurements", folder.write("runs.csv", kTable), "--model-family",
                                   "gpt", "--cluster", "dgx_a100_80g", "--calibrate-to", "/nowhere/mine.yaml"});
  EXPECT_NE(run.exit_status, 0);
  EXPECT_NE(run.err.find("/nowhere/mine.yaml"), std::string::npos) << run.err;
}

}  // namespace
}  // namespace weft
