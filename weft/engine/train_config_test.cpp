#include "weft/engine/train_config.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "tests/support/weights/example_files.h"

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

TEST(TrainConfig, EvaluationRulesAndLossAreReadAndWritten) {
  const auto config = read(R"(
steps: 100
optimizer:
  learning_rate: 1.0e-4
  rules: [{weights: "visual.*", learning_rate: 1.0e-5}, {weights: "*.bias", weight_decay: 0.5}]
loss: {label_smoothing: 0.1, z_loss: 1.0e-4}
checkpoints: {interval_steps: 20, keep_best: true}
evaluation: {interval_steps: 10, split: trained, patience: 3, min_improvement: 0.01}
on_metrics: "cat >> all.jsonl"
)");
  ASSERT_TRUE(config.ok()) << config.error().message();
  EXPECT_EQ(config->weight_rules, (std::vector<WeightRule>{{"visual.*", 1e-5, {}}, {"*.bias", {}, 0.5}}));
  EXPECT_EQ(config->loss, (LossSettings{.label_smoothing = 0.1, .z_loss = 1e-4}));
  EXPECT_TRUE(config->checkpoints.keep_best);
  EXPECT_EQ(config->evaluation.interval_steps, 10);
  EXPECT_EQ(config->evaluation.split, TrainConfig::Evaluation::Split::kTrained);
  EXPECT_EQ(config->evaluation.patience, 3);
  EXPECT_EQ(config->evaluation.min_improvement, 0.01);
  EXPECT_EQ(config->on_metrics, "cat >> all.jsonl");
  const auto again = read_train_config({.source = "config.json", .root = to_json(*config)});
  ASSERT_TRUE(again.ok()) << again.error().message();
  EXPECT_EQ(to_json(*again), to_json(*config));
}

TEST(TrainConfig, WhatCannotBeMeantIsNamed) {
  const std::string usual = "optimizer: {learning_rate: 1.0}\n";
  const auto field_of = [&](const std::string& text) {
    const auto config = read(text);
    return config ? std::string("none") : config.error().field;
  };
  EXPECT_EQ(field_of("steps: 5\ncheckpoints: {interval_steps: 1, keep_best: true}\n" + usual), "checkpoints.keep_best");
  EXPECT_EQ(field_of("steps: 5\nevaluation: {patience: 1}\n" + usual), "evaluation.patience");
  EXPECT_EQ(field_of("steps: 5\nepochs: 1\n" + usual), "epochs");
  EXPECT_EQ(field_of("epochs: 1\n" + usual), "epochs") << "synthetic samples have none";
  EXPECT_EQ(field_of("steps: 5\nevaluation: {split: best}\n" + usual), "evaluation.split");
  EXPECT_EQ(field_of("steps: 5\noptimizer: {learning_rate: 1.0, rules: [{weights: a}]}\n"),
            "optimizer.rules[0].weights");
  EXPECT_EQ(field_of("steps: 5\noptimizer: {learning_rate: 0, rules: [{weights: a, learning_rate: 1.0}]}\n"),
            "optimizer.rules[0].learning_rate");
  EXPECT_EQ(field_of("steps: 5\nloss: {label_smoothing: 2}\n" + usual), "loss.label_smoothing");
}

TEST(TrainConfig, APathThatIsNotUtf8IsNamed) {
  auto document = parse_document("steps: 1\noptimizer: {learning_rate: 1}\n", "train.yaml", Syntax::kYaml);
  ASSERT_TRUE(document.ok());
  for (const char* field : {"weights", "adapter"}) {
    Document given = *document;
    given.root[field] = "/x\xff";  // as a relative path becomes in a folder of this name
    const auto config = read_train_config(given);
    ASSERT_FALSE(config.ok()) << field;
    EXPECT_EQ(config.error().message(), fmt::format("train.yaml: {}: is '/x\\xff', which is not UTF-8: a run could not "
                                                    "write it down. Rename the folder.",
                                                    field));
  }
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

class DataOfTraining : public testing::Test {
 protected:
  DataOfTraining() {
    folder_.write("chats.jsonl", "{}\n");
    folder_.write("settings.yaml", "sets: [{file: chats.jsonl, weight: 2}]\nheld_out_share: 0.5\n");
    std::filesystem::create_directory(folder_ / "model");
  }
  std::string text(const std::string& data) const {
    std::string text = "steps: 10\noptimizer: {learning_rate: 0.5}\ndata: " + data + "\n";
    for (size_t at; (at = text.find("DIR")) != std::string::npos;) text.replace(at, 3, folder_.path().string());
    return text;
  }

  ScratchFolder folder_;
};

TEST_F(DataOfTraining, EveryFormIsReadAndWrittenBack) {
  for (const char* data :
       {"{model: DIR/model, settings: DIR/chats.jsonl}", "{model: DIR/model, settings: DIR/settings.yaml}",
        "{model: DIR/model, sets: [{file: DIR/chats.jsonl, form: llava, columns: {images: photo}}], loss: "
        "last_turn, cutoff_tokens: 99, image_max_pixels: 5000, video_fps: 2}"}) {
    const auto config = read(text(data));
    ASSERT_TRUE(config.ok()) << config.error().message();
    ASSERT_TRUE(config->data);
    EXPECT_EQ(config->data->model, folder_ / "model");
    EXPECT_EQ(config->data->settings.files.front().file, folder_ / "chats.jsonl");
    const auto again = read_train_config({.source = "again", .root = to_json(*config)});
    ASSERT_TRUE(again.ok()) << again.error().message();
    EXPECT_EQ(to_json(*again), to_json(*config));
  }
  const auto config =
      read(text("DIR/settings.yaml") + "weights: " + (folder_ / "model").string() + "\ndata_threads: 5\n");
  ASSERT_TRUE(config.ok()) << config.error().message();
  EXPECT_EQ(config->data->model, folder_ / "model") << "the weights' own";
  EXPECT_EQ(config->data->settings.held_out_share, 0.5);
  EXPECT_EQ(config->data_threads, 5);
  EXPECT_FALSE(read(text("synthetic"))->data);
}

TEST_F(DataOfTraining, WhatIsWrongIsNamed) {
  const auto problem = [&](const std::string& data) {
    const auto config = read(text(data));
    return config.ok() ? std::string("read") : config.error().message();
  };
  EXPECT_NE(problem("DIR/chats.jsonl").find("train.yaml: data.model: is missing, and so is weights"),
            std::string::npos);
  EXPECT_NE(problem("7").find("train.yaml: data: is the number 7"), std::string::npos) << problem("7");
  EXPECT_NE(problem("{model: DIR/none, settings: DIR/chats.jsonl}").find("data.model: is "), std::string::npos);
  EXPECT_NE(problem("{model: DIR/model, settings: DIR/settings.yaml, loss: everything}").find("data.settings"),
            std::string::npos);
  EXPECT_NE(problem("{model: DIR/model, sets: [{file: a, wieght: 1}]}").find("train.yaml: data.sets[0].wieght"),
            std::string::npos)
      << problem("{model: DIR/model, sets: [{file: a, wieght: 1}]}");
}

}  // namespace
}  // namespace weft
