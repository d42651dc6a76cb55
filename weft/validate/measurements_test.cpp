#include "weft/validate/measurements.h"

#include <gtest/gtest.h>

#include "tests/support/source_tree.h"
#include "weft/spec/cluster.h"
#include "weft/validate/validation.h"

namespace weft {
namespace {

const std::string kHeader =
    "num_gpus,global_batch,micro_batch,hidden_size,num_heads,num_layers,sequence_length,tp,dp,pp,iteration_ms";
const std::string kRow = "8,16,1,1024,16,8,512,2,2,2,123.5";

std::string finding(const std::string& text) {
  const Result<std::vector<TrainingRun>> runs = parse_measurements(text, "runs.csv");
  return runs.ok() ? "" : runs.error().message();
}

TEST(Measurements, ARowBecomesARun) {
  const std::vector<TrainingRun> runs = *parse_measurements(kHeader + "\n" + kRow + "\n", "runs.csv");
  ASSERT_EQ(runs.size(), 1u);
  const TrainingRun& run = runs.front();
  EXPECT_EQ(run.num_devices, 8);
  EXPECT_EQ(run.sequence_length, 512);
  EXPECT_EQ(run.tp * 100 + run.dp * 10 + run.pp, 222);
  EXPECT_EQ(run.measured_ms, 123.5);
  EXPECT_EQ(run.recompute, Recomputation::kFull);
  EXPECT_EQ(run.vocabulary, 51200);
  EXPECT_FALSE(run.fused_attention);
}

TEST(Measurements, ColumnsStandInAnyOrderAndSpacesAndBlankLinesDoNotMatter) {
  const std::string text = "\r\niteration_ms, recompute ,zero,vpp,sequence_parallel,attention,vocab_size," +
                           kHeader.substr(0, kHeader.rfind(',')) +
                           "\r\n 9.5e2 ,selective,1,2,true,fused,1000,8,16,1,1024,16,8,512,2,2,2\r\n\r\n";
  const Result<std::vector<TrainingRun>> runs = parse_measurements(text, "runs.csv");
  ASSERT_TRUE(runs.ok()) << runs.error().message();
  const TrainingRun& run = runs->front();
  EXPECT_EQ(run.measured_ms, 950);
  EXPECT_EQ(run.recompute, Recomputation::kSelective);
  EXPECT_EQ(run.zero, 1);
  EXPECT_EQ(run.vpp, 2);
  EXPECT_TRUE(run.sequence_parallel);
  EXPECT_TRUE(run.fused_attention);
  EXPECT_EQ(run.vocabulary, 1000);
}

TEST(Measurements, MistakesInTheHeaderAreNamed) {
  EXPECT_EQ(finding(""), "runs.csv: is empty. Give a header line and one line for each measured run.");
  EXPECT_EQ(finding(kHeader),
            "runs.csv: has a header but no rows. Give a header line and one line for each measured run.");
  EXPECT_EQ(finding(kHeader + ",tp\n"), "runs.csv: line 1: has the column tp twice. Remove one.");
  EXPECT_EQ(finding(kHeader.substr(0, kHeader.rfind(','))),
            "runs.csv: line 1: lacks the column iteration_ms. Add it: the first line names the columns.");
  const std::string unknown = finding(kHeader + ",hidden\n");
  EXPECT_EQ(unknown.substr(0, 61), "runs.csv: line 1: has the column 'hidden', which is not known");
  EXPECT_NE(finding("iteration_s," + kHeader).find("Did you mean 'iteration_ms'?"), std::string::npos);
}

TEST(Measurements, MistakesInACellNameLineAndColumn) {
  const auto row = [](const std::string& text) { return finding(kHeader + "\n" + kRow + "\n" + text + "\n"); };
  EXPECT_EQ(row("8,16,1"), "runs.csv: line 3: has 3 cells, but the header names 11 columns. Correct the row.");
  EXPECT_EQ(row("8,16,1,1024,16,8,512,two,2,2,1"),
            "runs.csv: line 3, tp: is 'two', a whole number from 1 to 16384 is needed. Correct the row.");
  EXPECT_EQ(row("8,16,0,1024,16,8,512,2,2,2,1"),
            "runs.csv: line 3, micro_batch: is '0', a whole number from 1 to 67108864 is needed. Correct the row.");
  for (const char* time : {"0", "-5", "nan", "inf", "1e12", "12ms", ""}) {
    EXPECT_EQ(row("8,16,1,1024,16,8,512,2,2,2," + std::string(time)),
              "runs.csv: line 3, iteration_ms: is '" + std::string(time) +
                  "', a time in milliseconds above 0 is needed. Correct the row.");
  }
  EXPECT_EQ(finding(kHeader + ",recompute\n" + kRow + ",some\n"),
            "runs.csv: line 2, recompute: is 'some', none, selective or full is needed. Correct the row.");
}

Cluster a100() {
  return *read_cluster_file(source_tree().string() + "/scenarios/clusters/dgx_a100_80g.yaml");
}

std::string contradiction(const std::string& row) {
  const Result<std::vector<PreparedRun>> runs = prepare(*parse_measurements(kHeader + "\n" + row, "runs.csv"), a100());
  return runs.ok() ? "" : runs.error().message();
}

TEST(Measurements, RowsThatContradictThemselvesAreNamedWithTheArithmetic) {
  EXPECT_EQ(contradiction(kRow), "");
  EXPECT_EQ(contradiction("16,16,1,1024,16,8,512,2,2,2,1"),
            "runs.csv: line 2: num_gpus: is 16, but tp 2 x dp 2 x pp 2 = 8. Correct the row.");
  EXPECT_EQ(contradiction("12,12,1,1024,16,12,512,2,2,3,1"),
            "runs.csv: line 2: num_gpus: is 12, which nodes of 8 devices do not make up. Correct the row, or use the "
            "cluster on which it was measured.");
  EXPECT_EQ(contradiction("8,17,1,1024,16,8,512,2,2,2,1"),
            "runs.csv: line 2: global_batch: is 17, which dp 2 x micro_batch 1 = 2 does not divide. Correct the row.");
  EXPECT_NE(contradiction("8,16,1,1000,16,8,512,2,2,2,1").find("does not divide"), std::string::npos)
      << "heads and width";
}

TEST(Measurements, DevicesThatNobodyHasAreRefusedBeforeTheyAreCounted) {
  EXPECT_EQ(finding(kHeader + "\n67108864,16,1,1024,16,8,512,2,2,2,1"),
            "runs.csv: line 2, num_gpus: is '67108864', a whole number from 1 to 1000000 is needed. Correct the row.");
  const std::vector<TrainingRun> runs = *parse_measurements(kHeader + "\n" + kRow, "runs.csv");
  std::vector<TrainingRun> many(3, runs.front());
  for (TrainingRun& run : many) {
    run.num_devices = 1'000'000;
    run.tp = int64_t{1} << 26;  // times itself and pp it is 2^64, which 64 bits hold as 0
    run.cp = run.tp;
    run.pp = 1 << 12;
    run.dp = 1;
  }
  EXPECT_EQ(prepare(many, a100()).error().message(),
            "runs.csv: line 2: num_gpus: is 1000000, but tp 67108864 x cp 67108864 x dp 1 x pp 4096 = "
            "9223372036854775807. Correct the row.");
  many.assign(1, runs.front());
  many.front().num_devices = 64'000'008;
  EXPECT_EQ(prepare(many, a100()).error().message(),
            "runs.csv: line 2: num_gpus: is 64,000,008: up to this row the runs have 64,000,008 devices, and "
            "64,000,000 are the most. Give the rows in several tables.");
}

TEST(Measurements, TimesInAnotherUnitAreSuspected) {
  std::vector<PreparedRun> runs = *prepare(*parse_measurements(kHeader + "\n" + kRow, "runs.csv"), a100());
  const Efficiency efficiency = a100().efficiency;
  const double true_ms = predict_ms(runs.front(), efficiency);
  const auto told = [&](double factor) {
    runs.front().run.measured_ms = factor * true_ms;
    const std::vector<std::string> sentences = suspicions(predict(runs, efficiency));
    return sentences.empty() ? std::string() : sentences.front();
  };
  EXPECT_EQ(told(1.2), "");
  EXPECT_NE(told(1e-3).find("are these seconds?"), std::string::npos);
  EXPECT_NE(told(1e3).find("are these microseconds?"), std::string::npos);
  EXPECT_NE(told(5).find("do cluster, recompute and attention fit the table?"), std::string::npos);
}

}  // namespace
}  // namespace weft
