#include "weft/schedule/step_metrics.h"

#include <cmath>

#include <gtest/gtest.h>

namespace weft {
namespace {

StepMetrics example() {
  return {
      .step = 12,
      .loss = 4.25,
      .gradient_norm = 0.5,
      .learning_rate = 1e-4,
      .num_tokens = 2048,
      .num_targets = 2000,
      .step_ms = 500,
      .model_flops = 1e12,
      .utilization = 0.312,
      .ranks = {{.compute_ms = 400, .communication_ms = 60, .bubble_ms = 40, .data_ms = 3, .peak_memory_bytes = 0x1p30},
                {.compute_ms = 300, .communication_ms = 50, .bubble_ms = 150, .peak_memory_bytes = 0x1p31}}};
}

TEST(StepMetrics, ALineHasEveryRank) {
  const Json json = to_json(example());
  EXPECT_EQ(json["step"], 12);
  EXPECT_EQ(json["tokens_per_s"], 4096.0);
  EXPECT_EQ(json["bubble_ms"], (Json{40.0, 150.0}));
  EXPECT_EQ(json["data_ms"], (Json{3.0, 0.0}));
  EXPECT_EQ(json["peak_memory_gib"], (Json{1.0, 2.0}));
  EXPECT_FALSE(json.contains("balance_loss"));
}

TEST(StepMetrics, RoutersHaveFieldsOfTheirOwn) {
  StepMetrics metrics = example();
  EXPECT_FALSE(to_json(metrics).contains("expert_rows"));
  metrics.experts = ExpertLoad{.rows = {3, 5}, .imbalance = 1.25, .moved_bytes = 96};
  const Json json = to_json(metrics);
  EXPECT_EQ(json["expert_rows"], (Json{3, 5}));
  EXPECT_EQ(json["expert_imbalance"], 1.25);
  EXPECT_EQ(json["expert_bytes"], 96);
}

TEST(StepMetrics, WhatIsNotFiniteStaysReadable) {
  StepMetrics metrics = example();
  metrics.loss = std::nan("");
  metrics.utilization.reset();
  const Json json = Json::parse(to_json(metrics).dump());
  EXPECT_EQ(json["loss"], "nan");
  EXPECT_TRUE(json["model_flops_utilization"].is_null());
}

TEST(StepMetrics, ProgressIsALine) {
  EXPECT_EQ(progress_line(example(), 100),
            "step 12/100  loss 4.2500  norm 0.5  lr 1.00e-04  4096 tokens/s  MFU 31.2 %  2.00 GiB");
}

}  // namespace
}  // namespace weft
