#include "tests/support/pipeline/example_training.h"
#include "tests/support/pipeline/plan_ranks.h"
#include "weft/meaning/check.h"
#include "weft/meaning/plan_schedule.h"

namespace weft::hetero_suite_test {
namespace {

constexpr auto kVision = ModuleKind::kVision;
constexpr auto kAudio = ModuleKind::kAudio;
constexpr auto kLlm = ModuleKind::kLlm;
constexpr auto kColocated = ModulePlacement::kColocated;
constexpr auto kDisjoint = ModulePlacement::kDisjoint;
constexpr auto kPartial = ModulePlacement::kPartial;
constexpr auto kFill = EncoderForm::kFill;
constexpr auto kStream = EncoderForm::kStream;

/// An example that has no media in any step would prove nothing.
void expect_media(const TrainingExample& example, const Model& model) {
  const ModelNumbers numbers = *numbers_to_run(model);
  for (const auto& [kind, encoder] : example.beside) {
    int64_t num_media = 0;
    for (int64_t step = 1; step <= example.steps; ++step) {
      const int64_t vocabulary = std::get<Lookup>(model.modules.back().entry.ops.front().shape).entries;
      for (const RawInputs& sample : example_batch(example, numbers, vocabulary, step)) {
        num_media += kind == kAudio ? std::ssize(sample.audio_frames)
                                    : std::ssize(sample.image_grids) + std::ssize(sample.video_grids);
      }
    }
    EXPECT_GT(num_media, 0) << name_of(kind);
  }
}

class EncodersBeside : public testing::TestWithParam<TrainingExample> {};

TEST_P(EncodersBeside, EqualOneRank) {
  TrainingExample example = GetParam();
  example.steps = 5;
  const Model model = example_model(example);
  expect_media(example, model);
  expect_same_training(train_example(example, model), expected_training(example, model));
}

std::vector<TrainingExample> colocated_plans() {
  const std::string vl = "qwen2_vl_untied";
  const std::string vl5 = "qwen2_5_vl";
  std::vector<TrainingExample> all;
  // Degrees of their own on the same ranks.
  all.push_back({.fixture = vl, .beside = {{kVision, {}}}});
  all.push_back({.fixture = vl, .dp = 2, .beside = {{kVision, {.dp = 2}}}});
  all.push_back({.fixture = vl, .tp = 2, .beside = {{kVision, {.dp = 2}}}});
  all.push_back({.fixture = vl, .dp = 2, .beside = {{kVision, {.tp = 2}}}});
  all.push_back({.fixture = vl5, .dp = 2, .mbs = 2, .beside = {{kVision, {.tp = 2, .sequence_parallel = true}}}});
  all.push_back({.fixture = vl, .tp = 2, .sequence_parallel = true, .beside = {{kVision, {.dp = 2}}}});
  all.push_back({.fixture = vl5, .tp = 2, .dp = 2, .sequence_parallel = true, .beside = {{kVision, {.dp = 4}}}});
  all.push_back({.fixture = vl, .tp = 2, .dp = 2, .beside = {{kVision, {.tp = 2, .dp = 2, .mbs_scale = 2}}}});
  // Macro batches of as many samples as MindSpeed-MM's documents have encoders take at once.
  all.push_back({.fixture = vl, .tp = 2, .microbatches = 8, .beside = {{kVision, {.dp = 2, .mbs_scale = 8}}}});
  all.push_back({.fixture = vl5, .pp = 2, .microbatches = 9, .beside = {{kVision, {.dp = 2, .mbs_scale = 4}}}});
  // Over the llm's pipeline ranks, with groups across them.
  all.push_back({.fixture = vl, .pp = 2, .microbatches = 3, .beside = {{kVision, {.dp = 2}}}});
  all.push_back({.fixture = "qwen2_vl_tied", .pp = 2, .microbatches = 4, .beside = {{kVision, {.tp = 2}}}});
  all.push_back({.fixture = vl,
                 .pp = 2,
                 .dp = 2,
                 .zero = 1,
                 .microbatches = 3,
                 .beside = {{kVision, {.dp = 4, .mbs_scale = 1, .zero = 1}}}});
  all.push_back({.fixture = vl,
                 .pp = 2,
                 .vpp = 2,
                 .schedule = "interleaved_1f1b",
                 .microbatches = 4,
                 .beside = {{kVision, {.dp = 2, .mbs_scale = 2}}}});
  all.push_back({.fixture = vl5,
                 .tp = 2,
                 .pp = 2,
                 .dp = 2,
                 .sequence_parallel = true,
                 .schedule = "zb_h1",
                 .microbatches = 3,
                 .beside = {{kVision, {.dp = 8}}}});
  all.push_back({.fixture = vl,
                 .pp = 2,
                 .vpp = 2,
                 .schedule = "zb_v",
                 .microbatches = 4,
                 .beside = {{kVision, {.dp = 2, .mbs_scale = 3}}}});
  all.push_back({.fixture = vl, .pp = 2, .schedule = "gpipe", .microbatches = 3, .beside = {{kVision, {.dp = 2}}}});
  // Macro batches that end inside a microbatch, and the last one short.
  all.push_back({.fixture = vl, .dp = 2, .microbatches = 5, .beside = {{kVision, {.dp = 2, .mbs_scale = 3}}}});
  all.push_back({.fixture = vl, .tp = 2, .dp = 2, .mbs = 2, .beside = {{kVision, {.dp = 4, .mbs_scale = 3}}}});
  all.push_back({.fixture = vl5, .microbatches = 6, .beside = {{kVision, {.mbs_scale = 4}}}});
  // Parts of a microbatch: one shared by more ranks than the llm has, one in several macro batches, and broken ones.
  all.push_back({.fixture = vl, .tp = 2, .mbs = 2, .beside = {{kVision, {.dp = 2, .mbs_parts = 2}}}});
  all.push_back({.fixture = vl5, .mbs = 4, .beside = {{kVision, {.mbs_parts = 4}}}});
  all.push_back({.fixture = vl, .dp = 2, .mbs = 2, .beside = {{kVision, {.dp = 2, .mbs_scale = 3, .mbs_parts = 2}}}});
  all.push_back({.fixture = vl,
                 .pp = 2,
                 .mbs = 3,
                 .microbatches = 3,
                 .beside = {{kVision, {.dp = 2, .mbs_scale = 2, .mbs_parts = 3, .zero = 1}}}});
  // States divided, in each module as it likes.
  for (const int64_t zero : {1, 2, 3}) {
    all.push_back(
        {.fixture = vl, .dp = 2, .zero = 3 - zero, .microbatches = 3, .beside = {{kVision, {.dp = 2, .zero = zero}}}});
    all.push_back({.fixture = vl5,
                   .pp = 2,
                   .dp = 2,
                   .zero = zero,
                   .microbatches = 3,
                   .beside = {{kVision, {.tp = 2, .dp = 2, .zero = zero, .sequence_parallel = true}}}});
  }
  // The forward again in EB, with blocks of it again, too.
  for (const int64_t zero : {0, 3}) {
    all.push_back({.fixture = vl,
                   .tp = 2,
                   .recompute = {.full = 1, .selective = 1},
                   .beside = {{kVision, {.dp = 2, .zero = zero, .recompute_from_inputs = true}}},
                   .bare_samples = {0}});
  }
  all.push_back({.fixture = vl5,
                 .pp = 2,
                 .microbatches = 4,
                 .beside = {{kVision, {.tp = 2, .mbs_scale = 2, .recompute_from_inputs = true}}}});
  // Gradients that are summed when all is over.
  all.push_back(
      {.fixture = vl, .pp = 2, .dp = 2, .zero = 1, .beside = {{kVision, {.tp = 2, .dp = 2}}}, .overlaps = false});
  return all;
}

std::vector<TrainingExample> ragged_plans() {
  const std::string vl = "qwen2_vl_untied";
  const std::string vl5 = "qwen2_5_vl";
  std::vector<TrainingExample> all;
  // No image on a rank, in a microbatch, in a step.
  for (const int64_t zero : {0, 2, 3}) {
    all.push_back({.fixture = vl,
                   .tp = 2,
                   .dp = 2,
                   .beside = {{kVision, {.dp = 4, .zero = zero}}},
                   .bare_samples = {0, 1},
                   .bare_step = 2});
  }
  all.push_back({.fixture = vl5,
                 .tp = 2,
                 .pp = 2,
                 .sequence_parallel = true,
                 .microbatches = 4,
                 .beside = {{kVision, {.tp = 2, .dp = 2}}},
                 .bare_samples = {1, 2},
                 .bare_step = 1});
  all.push_back({.fixture = vl,
                 .pp = 2,
                 .microbatches = 4,
                 .beside = {{kVision, {.placement = kDisjoint, .pp = 2, .form = kStream}}},
                 .bare_samples = {0, 3},
                 .bare_step = 3});
  // Frozen modules: the encoder, the llm, all but one.
  for (const std::vector<ModuleKind>& frozen : {std::vector{kVision}, std::vector{kLlm}}) {
    all.push_back({.fixture = vl, .tp = 2, .frozen = frozen, .beside = {{kVision, {.dp = 2}}}, .bare_samples = {1}});
    all.push_back({.fixture = vl5,
                   .pp = 2,
                   .microbatches = 4,
                   .frozen = frozen,
                   .beside = {{kVision, {.placement = kDisjoint, .pp = 2, .dp = 2, .form = kStream, .live = 4}}}});
    all.push_back({.fixture = vl,
                   .pp = 2,
                   .schedule = "zb_h1",
                   .microbatches = 4,
                   .frozen = frozen,
                   .beside = {{kVision, {.dp = 2, .form = kFill, .live = 2}}},
                   .bare_samples = {2, 3}});
  }
  all.push_back({.fixture = vl,
                 .tp = 2,
                 .dp = 2,
                 .sequence_parallel = true,
                 .frozen = {kLlm},
                 .beside = {{kVision, {.dp = 4, .zero = 3, .recompute_from_inputs = true}}},
                 .bare_samples = {0}});
  // Rows for tokens of one rank alone, samples of one token, samples without a target.
  all.push_back({.fixture = vl,
                 .tp = 2,
                 .sequence_parallel = true,
                 .microbatches = 3,
                 .beside = {{kVision, {.dp = 2}}},
                 .has_masked_sample = true,
                 .has_short_sample = true});
  // Images of all samples come before videos of all.
  all.push_back({.fixture = vl,
                 .tp = 2,
                 .mbs = 2,
                 .beside = {{kVision, {.dp = 2, .mbs_scale = 2}}},
                 .bare_samples = {2},
                 .has_videos = true});
  all.push_back({.fixture = vl,
                 .tp = 2,
                 .sequence_parallel = true,
                 .mbs = 2,
                 .microbatches = 3,
                 .beside = {{kVision, {.placement = kDisjoint, .pp = 2, .mbs_scale = 3, .form = kStream}}},
                 .has_videos = true});
  // Ranks that do nothing.
  all.push_back({.fixture = vl, .beside = {{kVision, {.placement = kDisjoint, .form = kStream}}}, .num_idle_ranks = 1});
  return all;
}

std::vector<TrainingExample> other_placements() {
  const std::string vl = "qwen2_vl_untied";
  const std::string vl5 = "qwen2_5_vl";
  std::vector<TrainingExample> all;
  // On ranks of its own, with stages of its own.
  all.push_back({.fixture = vl, .beside = {{kVision, {.placement = kDisjoint, .form = kStream}}}});
  all.push_back({.fixture = vl,
                 .tp = 2,
                 .sequence_parallel = true,
                 .microbatches = 3,
                 .beside = {{kVision, {.placement = kDisjoint, .tp = 2, .form = kStream, .sequence_parallel = true}}}});
  all.push_back({.fixture = vl5,
                 .tp = 2,
                 .pp = 2,
                 .microbatches = 4,
                 .beside = {{kVision, {.placement = kDisjoint, .pp = 3, .form = kStream, .live = 5}}}});
  all.push_back({.fixture = vl,
                 .dp = 2,
                 .microbatches = 3,
                 .beside = {{kVision, {.placement = kDisjoint, .dp = 3, .mbs_scale = 1, .form = kStream}}}});
  all.push_back(
      {.fixture = vl,
       .pp = 2,
       .dp = 2,
       .zero = 3,
       .microbatches = 4,
       .beside = {{kVision, {.placement = kDisjoint, .pp = 2, .dp = 2, .form = kStream, .live = 3, .zero = 2}}}});
  all.push_back(
      {.fixture = vl,
       .pp = 2,
       .vpp = 2,
       .schedule = "interleaved_1f1b",
       .microbatches = 4,
       .recompute = {.full = 1},
       .beside = {
           {kVision, {.placement = kDisjoint, .tp = 2, .pp = 2, .form = kStream, .zero = 0, .layers = {{1}, {2}}}}}});
  all.push_back({.fixture = vl5,
                 .pp = 2,
                 .schedule = "zb_h1",
                 .microbatches = 4,
                 .beside = {{kVision, {.placement = kDisjoint, .dp = 2, .mbs_scale = 2, .form = kStream, .zero = 3}}}});
  // On some of the llm's pipeline ranks.
  all.push_back(
      {.fixture = vl, .pp = 2, .microbatches = 3, .beside = {{kVision, {.placement = kPartial, .rows = {0}}}}});
  all.push_back({.fixture = vl,
                 .tp = 2,
                 .pp = 2,
                 .sequence_parallel = true,
                 .microbatches = 4,
                 .beside = {{kVision, {.placement = kPartial, .dp = 2, .mbs_scale = 2, .rows = {1}}}}});
  all.push_back({.fixture = vl5,
                 .pp = 3,
                 .dp = 2,
                 .zero = 1,
                 .microbatches = 3,
                 .beside = {{kVision, {.placement = kPartial, .tp = 2, .dp = 2, .zero = 1, .rows = {1, 2}}}}});
  all.push_back({.fixture = vl,
                 .pp = 3,
                 .microbatches = 4,
                 .beside = {{kVision, {.placement = kPartial, .dp = 2, .form = kFill, .live = 3, .rows = {0, 2}}}}});
  // In the bubbles.
  all.push_back(
      {.fixture = vl, .pp = 2, .microbatches = 4, .beside = {{kVision, {.dp = 2, .form = kFill, .live = 4}}}});
  all.push_back({.fixture = vl5,
                 .tp = 2,
                 .pp = 2,
                 .microbatches = 4,
                 .beside = {{kVision, {.tp = 2, .dp = 2, .form = kFill, .live = 2}}}});
  all.push_back({.fixture = vl,
                 .pp = 2,
                 .dp = 2,
                 .zero = 2,
                 .schedule = "zb_h1",
                 .microbatches = 6,
                 .beside = {{kVision, {.tp = 2, .dp = 2, .mbs_scale = 2, .form = kFill, .live = 2, .zero = 1}}}});
  for (const int64_t zero : {2, 3}) {
    all.push_back({.fixture = vl,
                   .pp = 3,
                   .microbatches = 6,
                   .beside = {{kVision, {.dp = 3, .form = kFill, .live = 2, .zero = zero}}}});
  }
  all.push_back({.fixture = vl,
                 .pp = 2,
                 .vpp = 2,
                 .schedule = "interleaved_1f1b",
                 .microbatches = 4,
                 .beside = {{kVision, {.dp = 2, .form = kFill, .live = 4}}},
                 .overlaps = false});
  return all;
}

std::vector<TrainingExample> pairs_of_encoders() {
  const std::string omni = "qwen2_5_omni";
  std::vector<TrainingExample> all;
  // Both encoders on every rank alone, the llm over four: the setting that MindSpeed-MM documents.
  all.push_back({.fixture = omni, .tp = 4, .dp = 2, .beside = {{kVision, {.dp = 8}}, {kAudio, {.dp = 8}}}});
  all.push_back({.fixture = omni,
                 .tp = 4,
                 .dp = 2,
                 .sequence_parallel = true,
                 .zero = 1,
                 .mbs = 2,
                 .beside = {{kVision, {.dp = 8, .zero = 1}}, {kAudio, {.tp = 2, .dp = 4, .zero = 3}}}});
  // Each elsewhere.
  all.push_back({.fixture = omni,
                 .tp = 2,
                 .microbatches = 3,
                 .beside = {{kVision, {.placement = kDisjoint, .tp = 2, .form = kStream}}, {kAudio, {.dp = 2}}}});
  all.push_back({.fixture = omni,
                 .pp = 2,
                 .microbatches = 4,
                 .beside = {{kVision, {.placement = kDisjoint, .pp = 2, .dp = 2, .form = kStream}},
                            {kAudio, {.placement = kDisjoint, .dp = 2, .mbs_scale = 2, .form = kStream}}}});
  all.push_back({.fixture = omni,
                 .pp = 2,
                 .dp = 2,
                 .microbatches = 3,
                 .beside = {{kVision, {.placement = kPartial, .dp = 2, .rows = {1}}},
                            {kAudio, {.tp = 2, .dp = 2, .mbs_scale = 4}}},
                 .bare_samples = {0, 1, 4}});
  all.push_back(
      {.fixture = omni,
       .pp = 2,
       .microbatches = 4,
       .beside = {{kVision, {.dp = 2, .form = kFill, .live = 3}}, {kAudio, {.tp = 2, .form = kFill, .live = 4}}}});
  all.push_back(
      {.fixture = omni,
       .pp = 2,
       .microbatches = 4,
       .beside = {{kVision, {.dp = 2, .form = kFill, .live = 2, .zero = 3}}, {kAudio, {.dp = 2, .zero = 2}}}});
  all.push_back({.fixture = omni,
                 .tp = 2,
                 .frozen = {kAudio},
                 .beside = {{kVision, {.dp = 2, .recompute_from_inputs = true}},
                            {kAudio, {.placement = kDisjoint, .form = kStream, .live = 1}}},
                 .bare_step = 2});
  all.push_back({.fixture = omni,
                 .pp = 2,
                 .microbatches = 3,
                 .frozen = {kVision, kLlm},
                 .beside = {{kVision, {.dp = 2}}, {kAudio, {.tp = 2}}}});
  // One in the pipeline, one beside it: the llm begins in a later stage.
  all.push_back({.fixture = omni,
                 .pp = 2,
                 .microbatches = 4,
                 .layers = {{0}, {2}},
                 .vision_layers = {{3}, {0}},
                 .beside = {{kAudio, {.dp = 2}}}});
  all.push_back({.fixture = omni,
                 .tp = 2,
                 .pp = 2,
                 .sequence_parallel = true,
                 .schedule = "zb_h1",
                 .microbatches = 4,
                 .layers = {{0}, {2}},
                 .vision_layers = {{3}, {0}},
                 .beside = {{kAudio, {.placement = kDisjoint, .tp = 2, .pp = 2, .form = kStream}}}});
  all.push_back({.fixture = omni,
                 .pp = 3,
                 .microbatches = 4,
                 .layers = {{0}, {1}, {1}},
                 .audio_layers = {{1}, {1}, {0}},
                 .frozen = {kLlm},
                 .beside = {{kVision, {.dp = 3, .form = kFill, .live = 4}}}});
  return all;
}

std::vector<TrainingExample> plans() {
  std::vector<TrainingExample> all;
  for (const auto& some : {colocated_plans(), ragged_plans(), other_placements(), pairs_of_encoders()})
    all.insert(all.end(), some.begin(), some.end());
  return all;
}

// A legal plan is what the examples above stand for.
TEST(EncodersBesideThePipeline, ArePlansThatTheCheckerAllows) {
  for (const TrainingExample& example : plans()) {
    const std::vector<Violation> violations = check_plan(example_training_plan(example, example_model(example)));
    EXPECT_TRUE(violations.empty()) << example.name() << ": " << violations.front().field << ": "
                                    << violations.front().message;
  }
}

// On threads or processes: every rank knows what the whole batch came to.
class EncodersOnRanks : public testing::TestWithParam<TrainingExample> {};

TEST_P(EncodersOnRanks, GiveTheLossOfOneRank) {
  const TrainingExample& example = GetParam();
  const Model model = example_model(example);
  const Plan plan = example_training_plan(example, model);
  const TrainingOutcome& expected = expected_training(example, model);
  const bool ran = plan_ranks().run(plan.world_size, [&](World& world) {
    at::set_num_threads(1);
    auto made = TrainingRank::create(world, plan, {.max_gradient_norm = kExampleMaxNorm, .seed = kExampleSeed});
    WEFT_CHECK(made.ok(), "{}", made.error().message());
    TrainingRank& rank = **made;
    for (int64_t step = 1; step <= example.steps; ++step) {
      const std::vector<RawInputs> samples = example_batch(example, rank.numbers(), rank.vocabulary(), step);
      const StepBatch batch = example_step_batch(rank, samples);
      const int64_t num_targets = num_example_targets(samples);
      const double loss = expected.losses[static_cast<size_t>(step - 1)];
      EXPECT_NEAR(rank.evaluate(batch) / static_cast<double>(num_targets), loss, 1e-9 * loss);
      const StepReport report = rank.step(batch, num_targets, kExampleRate);
      EXPECT_NEAR(report.loss, loss, 1e-9 * loss);
      const double norm = expected.norms[static_cast<size_t>(step - 1)];
      EXPECT_NEAR(report.gradient_norm, norm, 1e-9 * norm);
    }
  });
  if (!ran) GTEST_SKIP() << "needs " << plan.world_size << " ranks";
}

std::vector<TrainingExample> plans_on_ranks() {
  return {{.fixture = "qwen2_vl_untied", .dp = 2, .beside = {{kVision, {.tp = 2}}}},
          {.fixture = "qwen2_vl_untied",
           .microbatches = 4,
           .beside = {{kVision, {.placement = kDisjoint, .form = kStream, .live = 2}}}},
          {.fixture = "qwen2_vl_untied",
           .pp = 2,
           .microbatches = 4,
           .beside = {{kVision, {.dp = 2, .form = kFill, .live = 3}}}},
          {.fixture = "qwen2_vl_untied", .cp = 2, .mbs = 2},
          {.fixture = "qwen2_vl_untied", .cp = 2, .ulysses = 2, .mbs = 2, .beside = {{kVision, {.cp = 2}}}},
          {.fixture = "qwen2_5_omni",
           .tp = 2,
           .cp = 2,
           .pp = 2,
           .sequence_parallel = true,
           .microbatches = 3,
           .beside = {{kVision, {.cp = 2, .dp = 4}}, {kAudio, {.dp = 8}}}},
          {.fixture = "qwen2_5_omni",
           .tp = 4,
           .dp = 2,
           .sequence_parallel = true,
           .beside = {{kVision, {.dp = 8}}, {kAudio, {.tp = 2, .dp = 4}}}},
          {.fixture = "qwen2_5_omni",
           .tp = 2,
           .pp = 2,
           .microbatches = 4,
           .beside = {{kVision, {.placement = kDisjoint, .pp = 2, .dp = 2, .form = kStream}},
                      {kAudio, {.tp = 2, .dp = 2, .form = kFill, .live = 3}}}}};
}

// What is planned is what is told.
TEST(EncodersBesideThePipeline, AreInTheTimeline) {
  const TrainingExample example{.fixture = "qwen2_vl_untied",
                                .pp = 2,
                                .microbatches = 4,
                                .beside = {{kVision, {.dp = 2, .form = kFill, .live = 2}}}};
  const Plan plan = example_training_plan(example, example_model(example));
  std::mutex guard;
  std::map<int64_t, std::vector<std::string>> told;
  const auto error = run_ranks({.size = 2}, [&](World& world) {
    at::set_num_threads(1);
    const auto made = TrainingRank::create(world, plan, {});
    TrainingRank& rank = **made;
    const std::vector<RawInputs> samples = example_batch(example, rank.numbers(), rank.vocabulary(), 1);
    const StepReport report = rank.step(example_step_batch(rank, samples), num_example_targets(samples), kExampleRate);
    const std::lock_guard lock(guard);
    for (const TimelineEvent& event : report.events) told[world.rank()].push_back(to_text(event.action));
  });
  EXPECT_FALSE(error);
  EXPECT_EQ(told, stored_rows(*playable_schedule(plan)));
}

TEST(EncodersBesideThePipeline, AreNamedForWhatIsNotFinite) {
  const TrainingExample example{.fixture = "qwen2_5_omni",
                                .tp = 2,
                                .microbatches = 6,
                                .beside = {{kVision, {.dp = 2}}, {kAudio, {.placement = kDisjoint, .form = kStream}}}};
  const Plan plan = example_training_plan(example, example_model(example));
  for (const auto& [broken, name] : {std::pair{"visual.", "vision"}, std::pair{"audio_tower.", "audio"}}) {
    std::mutex guard;
    const auto error = run_ranks({.size = plan.world_size}, [&](World& world) {
      at::set_num_threads(1);
      const auto made = TrainingRank::create(world, plan, {.seed = kExampleSeed});
      TrainingRank& rank = **made;
      rank.gather_values();
      for (const ParameterPtr& parameter : rank.parameters()) {
        if (parameter->name().find(broken) == std::string::npos) continue;
        parameter->value.detach().fill_(std::nan(""));
      }
      rank.adopt_values();
      const std::vector<RawInputs> samples = example_batch(example, rank.numbers(), rank.vocabulary(), 1);
      const StepReport report =
          rank.step(example_step_batch(rank, samples), num_example_targets(samples), kExampleRate);
      const std::lock_guard lock(guard);
      EXPECT_FALSE(report.is_updated);
      EXPECT_NE(report.not_finite.find(name), std::string::npos) << report.not_finite;
    });
    EXPECT_FALSE(error);
  }
}

INSTANTIATE_TEST_SUITE_P(Plans, EncodersOnRanks, testing::ValuesIn(plans_on_ranks()),
                         [](const auto& named) { return named.param.name(); });
INSTANTIATE_TEST_SUITE_P(Plans, EncodersBeside, testing::ValuesIn(plans()),
                         [](const auto& named) { return named.param.name(); });

}  // namespace
}  // namespace weft::hetero_suite_test
