#include "weft/engine/train_config.h"

#include <gtest/gtest.h>

namespace weft {
namespace {

Result<TrainConfig> read(const std::string& text) {
  const auto document = parse_document(text, "train.yaml", Syntax::kYaml);
  WEFT_CHECK(document.ok(), "{}", document.error().message());
  return read_train_config(*document);
}

TEST(TrainConfig, StepsAndALearningRateAreEnough) {
  const auto config = read("steps: 10\noptimizer: {learning_rate: 0.5}\n");
  ASSERT_TRUE(config.ok()) << config.error().message();
  EXPECT_EQ(config->steps, 10);
  EXPECT_EQ(config->learning_rate.peak, 0.5);
  EXPECT_EQ(config->learning_rate.total_steps, 10);
  EXPECT_EQ(config->learning_rate.kind, LearningRate::Kind::kCosine);
  EXPECT_EQ(config->learning_rate.end_fraction, 0.1);
  const auto scheduled =
      read("steps: 10\noptimizer: {learning_rate: 0.5}\nlearning_rate_schedule: {warmup_steps: 2}\n");
  ASSERT_TRUE(scheduled.ok()) << scheduled.error().message();
  EXPECT_EQ(scheduled->learning_rate.kind, LearningRate::Kind::kCosine);
  EXPECT_EQ(scheduled->learning_rate.warmup_steps, 2);
  EXPECT_EQ(scheduled->learning_rate.end_fraction, 0.1) << "as without the section";
  EXPECT_EQ(config->max_gradient_norm, 1);
  EXPECT_EQ(config->checkpoints.interval_steps, 0);
  EXPECT_EQ(config->device, "cpu");
  EXPECT_TRUE(config->weights.empty());
}

TEST(TrainConfig, EveryFieldIsRead) {
  const auto config = read(R"(
steps: 100
seed: 5
device: cuda
threads_per_rank: 3
weights: a/b
run_folder: c
data: synthetic
optimizer: {learning_rate: 1.0e-4, beta1: 0.8, beta2: 0.9, epsilon: 1.0e-6, weight_decay: 0.2, max_gradient_norm: 0}
learning_rate_schedule: {kind: linear, warmup_steps: 7, end_fraction: 0.25}
checkpoints: {interval_steps: 20, keep: 3}
evaluation_batches: 4
)");
  ASSERT_TRUE(config.ok()) << config.error().message();
  EXPECT_EQ(config->seed, 5u);
  EXPECT_EQ(config->device, "cuda");
  EXPECT_EQ(config->threads_per_rank, 3);
  EXPECT_EQ(config->weights, "a/b");
  EXPECT_EQ(config->run_folder, "c");
  EXPECT_EQ(config->adamw.beta1, 0.8);
  EXPECT_EQ(config->adamw.beta2, 0.9);
  EXPECT_EQ(config->adamw.epsilon, 1e-6);
  EXPECT_EQ(config->adamw.weight_decay, 0.2);
  EXPECT_EQ(config->max_gradient_norm, 0);
  EXPECT_EQ(config->learning_rate.kind, LearningRate::Kind::kLinear);
  EXPECT_EQ(config->learning_rate.warmup_steps, 7);
  EXPECT_EQ(config->learning_rate.end_fraction, 0.25);
  EXPECT_EQ(config->checkpoints.keep, 3);
  EXPECT_EQ(config->evaluation_batches, 4);
}

TEST(TrainConfig, WhatIsWrongIsNamed) {
  const auto problem = [](const std::string& text) {
    const auto config = read(text);
    return config.ok() ? std::string() : config.error().message();
  };
  const std::string good = "steps: 10\noptimizer: {learning_rate: 0.5}\n";
  const auto says = [&](const std::string& text, const std::string& what) {
    const std::string told = problem(text);
    return told.find(what) != std::string::npos ? testing::AssertionSuccess() : testing::AssertionFailure() << told;
  };
  EXPECT_TRUE(says("optimizer: {learning_rate: 1}\n", "train.yaml: steps: is missing"));
  EXPECT_TRUE(says("steps: 0\noptimizer: {learning_rate: 1}\n", "steps: "));
  EXPECT_TRUE(says("steps: 5\n", "optimizer: is missing"));
  EXPECT_TRUE(says(good + "epochs: 3\n", "epochs"));
  EXPECT_TRUE(says("steps: 5\noptimizer: {learning_rate: 1, beta3: 1}\n", "optimizer.beta3"));
  EXPECT_TRUE(says(good + "learning_rate_schedule: {kind: cosinus}\n", "Did you mean 'cosine'?"));
  EXPECT_TRUE(says(good + "learning_rate_schedule: {warmup_steps: 10}\n", "has 10 warmup_steps"));
  EXPECT_TRUE(says(good + "checkpoints: {keep: 3}\n", "checkpoints.interval_steps: is missing"));
  EXPECT_TRUE(says(good + "data: mydata\n", "data: "));
  EXPECT_TRUE(says("steps: 5\noptimizer: {learning_rate: -1}\n", "optimizer.learning_rate"));
}

}  // namespace
}  // namespace weft
