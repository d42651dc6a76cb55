#pragma once

#include <filesystem>
#include <fstream>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "tests/support/loader/conversation_files.h"
#include "tests/support/pipeline/example_training.h"
#include "weft/comm/run_ranks.h"
#include "weft/engine/run_folder.h"
#include "weft/engine/trainer.h"
#include "weft/engine/training_session.h"
#include "weft/meaning/check.h"
#include "weft/spec/workload.h"

namespace weft::training {

inline constexpr int64_t kSteps = 4;
inline constexpr int64_t kBatch = 8;

/// Losses and gradient norms of every step, and the loss over samples that training does not see.
struct Outcome {
  std::vector<double> numbers;
  std::optional<Error> error;
};

/// Training on the conversations of a folder as a user has it.
class ConversationTraining : public testing::Test {
 protected:
  Plan plan(TrainingExample example) const {
    example.microbatches = kBatch / example.mbs / example.dp;
    Plan made = example_training_plan(example, files_.model());
    Workload workload = *read_workload_file(source_tree() / "scenarios/workloads/tiny_vl.yaml");
    workload.global_batch_samples = kBatch;
    made.workload = std::move(workload);
    Cluster cluster = *read_cluster_file(source_tree() / "scenarios/clusters/local_cpu.yaml");
    cluster.nodes = 1;
    cluster.devices_per_node = made.world_size;
    made.cluster = std::move(cluster);
    const auto violations = check_plan(made);
    WEFT_CHECK(violations.empty(), "{}: {}", violations.front().field, violations.front().message);
    return made;
  }

  TrainConfig config(int64_t steps = kSteps) const {
    TrainConfig config{.source = "code", .steps = steps, .seed = 3, .device = "cpu", .threads_per_rank = 1};
    config.learning_rate = {.kind = LearningRate::Kind::kConstant, .peak = 2e-3, .total_steps = steps};
    config.adamw.epsilon = 1e-3;  // gradients near rounding are not blown up
    config.evaluation_batches = 2;
    const DataFile file{.file = files_.folder() / "chats.jsonl", .folder = files_.folder()};
    config.data = TrainData{.settings = {.source = "code", .files = {file}}, .model = files_.folder() / "model"};
    config.data->settings.held_out_share = 0.2;
    return config;
  }

  Outcome train(const Plan& plan, const TrainConfig& config, TrainOptions options = {}) {
    Outcome outcome;
    if (options.run_folder.empty()) options.run_folder = files_.folder() / fmt::format("run{}", num_runs_++);
    options.on_step = [&](const StepMetrics& metrics, int64_t) {
      outcome.numbers.push_back(metrics.loss);
      outcome.numbers.push_back(metrics.gradient_norm);
      outcome.numbers.push_back(static_cast<double>(metrics.num_tokens));
      outcome.numbers.push_back(static_cast<double>(metrics.num_targets));
    };
    Trainer trainer(plan, config);
    last_run_ = options.run_folder;
    const auto report = trainer.train(options);
    if (!report) {
      outcome.error = report.error();
      return outcome;
    }
    if (config.checkpoints.interval_steps == 0 || config.data->settings.held_out_share == 0) return outcome;
    const auto seen = trainer.evaluate(options.run_folder);
    EXPECT_TRUE(seen.ok()) << seen.error().message();
    if (seen) outcome.numbers.push_back((*seen)->loss);
    return outcome;
  }

  /// By ranks that share no batches, as processes do not: each reads its own part of every sample.
  static Outcome train_apart(const Plan& plan, const TrainConfig& config) {
    Outcome parts;
    const auto error = run_ranks({.size = plan.world_size}, [&](World& world) {
      const auto session = TrainingSession::create(world, plan, config, {.checkpoint = std::nullopt, .goes_on = true});
      ASSERT_TRUE(session.ok()) << session.error().message();
      for (int64_t step = 0; step < config.steps; ++step) {
        const auto metrics = (*session)->step();
        ASSERT_TRUE(metrics.ok()) << metrics.error().message();
        if (world.rank() != 0) continue;
        for (const double number : {metrics->loss, metrics->gradient_norm, static_cast<double>(metrics->num_tokens),
                                    static_cast<double>(metrics->num_targets)})
          parts.numbers.push_back(number);
      }
    });
    EXPECT_FALSE(error) << error->message();
    return parts;
  }

  static std::string lines_of(const std::filesystem::path& run) {
    std::ifstream file(RunFolder{run}.skipped());
    return {std::istreambuf_iterator<char>(file), {}};
  }

  static void expect_same(const Outcome& found, const Outcome& expected, const char* name, double tolerance = 1e-9) {
    ASSERT_FALSE(found.error) << name << ": " << found.error->message();
    ASSERT_FALSE(expected.error) << expected.error->message();
    ASSERT_EQ(found.numbers.size(), expected.numbers.size()) << name;
    for (size_t i = 0; i < found.numbers.size(); ++i)
      EXPECT_NEAR(found.numbers[i], expected.numbers[i], tolerance * expected.numbers[i]) << name << ", number " << i;
  }

  std::vector<std::pair<const char*, Plan>> plans() const {
    const auto colocated = [](int64_t tp, int64_t dp) {
      return EncoderExample{.placement = ModulePlacement::kColocated, .tp = tp, .dp = dp};
    };
    const EncoderExample disjoint{
        .placement = ModulePlacement::kDisjoint, .dp = 2, .form = EncoderForm::kStream, .zero = 0};
    return {
        {"dp 2", plan({.dp = 2, .zero = 1})},
        {"tp 2", plan({.tp = 2})},
        {"pp 2", plan({.pp = 2, .mbs = 2})},
        {"cp 2", plan({.cp = 2})},
        {"colocated", plan({.tp = 2, .beside = {{ModuleKind::kVision, colocated(1, 2)}}})},
        {"both colocated",
         plan({.dp = 2, .beside = {{ModuleKind::kVision, colocated(2, 1)}, {ModuleKind::kAudio, colocated(1, 2)}}})},
        {"disjoint", plan({.pp = 2, .beside = {{ModuleKind::kVision, disjoint}}})}};
  }

  ConversationFiles files_;
  std::filesystem::path last_run_;
  int num_runs_ = 0;
};

}  // namespace weft::training
