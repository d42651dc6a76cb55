#include "tests/support/pipeline/example_training.h"
#include "weft/meaning/check.h"

namespace weft::forms_test {
namespace {

class TrainedForms : public testing::TestWithParam<TrainingExample> {};

TEST_P(TrainedForms, EqualOneRank) {
  const TrainingExample& example = GetParam();
  const Model model = example_model(example);
  expect_same_training(train_example(example, model), expected_training(example, model));
}

std::vector<TrainingExample> forms() {
  std::vector<TrainingExample> all;
  // Attention that runs again, alone, behind whole blocks that do, and with weight gradients apart.
  all.push_back({.fixture = "llama_scaled", .recompute = {.selective = 3}});
  all.push_back(
      {.fixture = "qwen2_tied", .tp = 2, .sequence_parallel = true, .recompute = {.full = 1, .selective = 1}});
  all.push_back({.fixture = "llama_scaled",
                 .pp = 2,
                 .dp = 2,
                 .zero = 3,
                 .schedule = "zb_h1",
                 .microbatches = 4,
                 .recompute = {.selective = 2}});
  all.push_back({.fixture = "qwen2_5_vl", .pp = 2, .recompute = {.full = 1, .selective = 2}});
  // Rows of encoders in the pipeline divided, in one stage and over several, as the llm's are or not.
  for (const char* fixture : {"qwen2_vl_untied", "qwen2_5_vl"}) {
    all.push_back({.fixture = fixture, .tp = 2, .sequence_parallel = true, .mbs = 2});
    all.push_back({.fixture = fixture, .tp = 2, .sequence_parallel = true, .encoder_sequence_parallel = false});
    all.push_back({.fixture = fixture, .tp = 2, .sequence_parallel = false, .encoder_sequence_parallel = true});
  }
  all.push_back({.fixture = "qwen2_vl_tied",
                 .tp = 2,
                 .pp = 3,
                 .sequence_parallel = true,
                 .microbatches = 4,
                 .layers = {{0}, {0}, {2}},
                 .vision_layers = {{1}, {1}, {0}}});
  all.push_back({.fixture = "qwen2_5_vl",
                 .tp = 2,
                 .pp = 2,
                 .dp = 2,
                 .sequence_parallel = true,
                 .zero = 2,
                 .microbatches = 3,
                 .layers = {{0}, {2}},
                 .vision_layers = {{3}, {0}},
                 .recompute = {.full = 1, .selective = 1}});
  all.push_back(
      {.fixture = "qwen2_vl_untied", .tp = 2, .pp = 2, .sequence_parallel = true, .frozen = {ModuleKind::kVision}});
  // Two encoders in the pipeline.
  all.push_back({.fixture = "qwen2_5_omni", .mbs = 2});
  all.push_back({.fixture = "qwen2_5_omni",
                 .pp = 3,
                 .microbatches = 4,
                 .layers = {{0}, {1}, {1}},
                 .vision_layers = {{2}, {1}, {0}},
                 .audio_layers = {{1}, {1}, {0}}});
  all.push_back({.fixture = "qwen2_5_omni",
                 .tp = 2,
                 .pp = 3,
                 .sequence_parallel = true,
                 .microbatches = 4,
                 .layers = {{0}, {0}, {2}},
                 .vision_layers = {{3}, {0}, {0}},
                 .audio_layers = {{1}, {1}, {0}}});
  all.push_back({.fixture = "qwen2_5_omni", .tp = 2, .dp = 2, .sequence_parallel = true, .zero = 1});
  all.push_back({.fixture = "qwen2_5_omni", .tp = 2, .frozen = {ModuleKind::kVision}});
  // Mixtures of experts, cut and balanced.
  for (const char* fixture : {"qwen3_moe_mixed", "qwen3_moe_norm"}) {
    for (const bool sequence_parallel : {false, true}) {
      for (const double coefficient : {0.0, 0.3}) {
        all.push_back(
            {.fixture = fixture, .tp = 2, .sequence_parallel = sequence_parallel, .balance_coefficient = coefficient});
      }
    }
  }
  all.push_back({.fixture = "qwen3_moe_norm", .dp = 2, .mbs = 2, .microbatches = 3, .balance_coefficient = 0.3});
  all.push_back({.fixture = "qwen3_moe_norm",
                 .tp = 3,
                 .pp = 2,
                 .sequence_parallel = true,
                 .schedule = "zb_h1",
                 .microbatches = 4,
                 .balance_coefficient = 0.3});
  all.push_back({.fixture = "qwen3_moe_mixed",
                 .tp = 2,
                 .pp = 2,
                 .dp = 2,
                 .sequence_parallel = true,
                 .zero = 2,
                 .microbatches = 3,
                 .recompute = {.full = 1, .selective = 1},
                 .balance_coefficient = 0.3});
  // Families that have no form of their own above, over both axes.
  for (const char* fixture : {"llama_tied", "llama_bias", "qwen2_tied", "qwen3"})
    all.push_back({.fixture = fixture, .tp = 2, .pp = 2, .sequence_parallel = true, .microbatches = 3});
  // Microbatches without a target, of one token, and of fewer rows than ranks.
  all.push_back({.pp = 2, .dp = 2, .has_masked_sample = true});
  all.push_back({.fixture = "qwen2_vl_untied", .tp = 2, .pp = 2, .sequence_parallel = true, .has_masked_sample = true});
  all.push_back({.fixture = "qwen3_moe_norm",
                 .tp = 2,
                 .sequence_parallel = true,
                 .microbatches = 3,
                 .balance_coefficient = 0.3,
                 .has_masked_sample = true,
                 .has_short_sample = true});
  all.push_back({.fixture = "qwen2_tied", .tp = 2, .pp = 2, .sequence_parallel = true, .has_short_sample = true});
  all.push_back({.fixture = "qwen2_tied",
                 .tp = 3,
                 .pp = 2,
                 .sequence_parallel = true,
                 .recompute = {.full = 1, .selective = 1},
                 .has_short_sample = true});
  all.push_back({.fixture = "qwen2_vl_untied", .tp = 2, .sequence_parallel = true, .has_short_sample = true});
  // Experts shared out: alone, with copies, and with everything else.
  all.push_back({.fixture = "qwen3_moe_norm", .dp = 2, .ep = 2});
  all.push_back({.fixture = "qwen3_moe_norm", .dp = 4, .ep = 2, .mbs = 2});
  all.push_back({.fixture = "qwen3_moe_norm", .dp = 8, .ep = 8, .microbatches = 1});
  all.push_back({.fixture = "qwen3_moe_norm", .dp = 2, .ep = 2, .microbatches = 3, .balance_coefficient = 0.3});
  all.push_back({.fixture = "qwen3_moe_norm", .pp = 2, .dp = 2, .ep = 2, .schedule = "zb_h1", .microbatches = 4});
  all.push_back({.fixture = "qwen3_moe_norm", .tp = 2, .pp = 2, .dp = 2, .ep = 2, .sequence_parallel = true});
  all.push_back({.fixture = "qwen3_moe_norm", .dp = 2, .ep = 2, .recompute = {.full = 2}});
  all.push_back({.fixture = "qwen3_moe_norm", .dp = 2, .ep = 2, .has_masked_sample = true, .has_short_sample = true});
  all.push_back({.fixture = "qwen3_moe_mixed", .sizes = R"({"num_local_experts": 6})", .dp = 2, .ep = 2});
  // And divided by ZeRO: between two ranks that have the same experts, or between none.
  for (const int64_t ep : {2, 4}) {
    for (const int64_t zero : {1, 2, 3}) {
      const double buckets_mb = zero == 2 ? 0.01 : 64;
      const TrainingExample four{
          .fixture = "qwen3_moe_norm", .dp = 4, .ep = ep, .zero = zero, .buckets_mb = buckets_mb};
      all.push_back(four);
      all.push_back(four);
      all.back().pp = 2;
      all.back().microbatches = 3;
      all.push_back(all.back());
      all.back().schedule = "zb_h1";
      all.push_back(four);
      all.back().tp = 2;
      all.back().sequence_parallel = true;
      all.push_back(four);
      all.back().recompute = {.full = 2};
      all.back().balance_coefficient = 0.3;
    }
  }
  all.push_back({.fixture = "qwen3_moe_mixed",
                 .sizes = R"({"num_local_experts": 6})",
                 .dp = 4,
                 .ep = 2,
                 .zero = 3,
                 .schedule = "zb_h1",
                 .recompute = {.full = 1},
                 .has_short_sample = true});
  // Sizes that do not divide, and products of everything on eight ranks.
  const std::string five_layers = R"({"num_hidden_layers": 5})";
  const std::string seven_groups = R"({"hidden_size": 84, "num_attention_heads": 14, "num_key_value_heads": 7})";
  all.push_back({.sizes = seven_groups, .tp = 2});
  all.push_back({.sizes = seven_groups, .tp = 2, .pp = 2, .dp = 2, .sequence_parallel = true, .zero = 3});
  all.push_back({.sizes = five_layers, .pp = 3, .microbatches = 4});
  all.push_back({.sizes = five_layers, .pp = 2, .microbatches = 3});
  all.push_back({.sizes = five_layers, .pp = 4, .schedule = "zb_h1", .microbatches = 5});
  all.push_back({.sizes = five_layers, .tp = 2, .pp = 4, .sequence_parallel = true, .microbatches = 4});
  all.push_back({.sizes = five_layers, .tp = 2, .pp = 4, .schedule = "gpipe", .microbatches = 3});
  all.push_back({.sizes = five_layers,
                 .tp = 2,
                 .pp = 2,
                 .vpp = 2,
                 .dp = 2,
                 .sequence_parallel = true,
                 .zero = 2,
                 .schedule = "interleaved_1f1b",
                 .microbatches = 4});
  all.push_back(
      {.sizes = five_layers, .tp = 2, .pp = 2, .vpp = 2, .dp = 2, .zero = 1, .schedule = "zb_v", .microbatches = 4});
  all.push_back({.sizes = five_layers,
                 .pp = 4,
                 .dp = 2,
                 .zero = 3,
                 .schedule = "zb_h1",
                 .microbatches = 4,
                 .layers = {{2}, {0}, {3}, {0}}});
  // The commonest way to finetune: a tower that stays as it is, and a merger that learns; in the pipeline, on all
  // ranks, and on stages of its own, of which the first has nothing to train.
  const std::vector<TrainRule> merger_alone = {{"visual.*", false}, {"visual.merger.*", true}};
  all.push_back({.fixture = "qwen2_vl_untied", .pp = 2, .dp = 2, .zero = 3, .recompute = {.full = 1}});
  all.back().trainable = merger_alone;
  all.push_back(
      {.fixture = "qwen2_5_vl", .tp = 2, .pp = 2, .sequence_parallel = true, .schedule = "zb_h1", .microbatches = 3});
  all.back().trainable = merger_alone;
  all.push_back({.fixture = "qwen2_vl_untied", .dp = 2, .beside = {{ModuleKind::kVision, {.tp = 2, .zero = 1}}}});
  all.back().trainable = merger_alone;
  all.push_back({.fixture = "qwen2_5_vl",
                 .dp = 2,
                 .beside = {{ModuleKind::kVision,
                             {.placement = ModulePlacement::kDisjoint, .pp = 2, .form = EncoderForm::kStream}}}});
  all.back().trainable = merger_alone;
  // Only the merger, through a language model that does not learn.
  all.push_back({.fixture = "qwen2_vl_untied", .pp = 2, .microbatches = 3});
  all.back().trainable = {{"*", false}, {"visual.merger.mlp.*", true}};
  // Only late layers of a text model, whose tied table stays as it is.
  all.push_back({.sizes = five_layers, .pp = 3, .dp = 2, .zero = 2, .microbatches = 3, .recompute = {.full = 2}});
  all.back().trainable = {{"*", false}, {"model.layers.3.*", true}};
  // A schedule that no generator makes: three stages on one rank, one on the other, some backwards split.
  all.push_back({.sizes = five_layers,
                 .pp = 2,
                 .vpp = 3,
                 .dp = 2,
                 .zero = 2,
                 .microbatches = 3,
                 .layers = {{1, 1, 2}, {1}},
                 .recompute = {.full = 1}});
  all.back().rows = {"0F0 0F1 2F0 3F0 3I0 0F2 2F1 3F1 2B0 3B1 2I1 3W0 2F2 3F2 3B2 2B2 0B0 2W1 0B1 0B2",
                     "1F0 1F1 1B0 1F2 1I1 1B2 1W1"};
  for (TrainingExample& example : all) example.steps = example.ep > 1 ? 5 : example.steps;
  return all;
}

// Ranks add products up in another order and round each sum to eight bits, and where a gradient is near zero AdamW's
// first steps go by its sign alone: weights go apart. So losses are compared, which average over all of them, and the
// gradient's norm while weights are still the same.
TEST(TrainingForms, Bfloat16WithWeightsInFloatIsNearOneRank) {
  TrainingExample example{
      .fixture = "qwen2_vl_untied",
      .tp = 2,
      .pp = 2,
      .dp = 2,
      .sequence_parallel = true,
      .zero = 1,
      .precision = {.compute = Precision::kBf16, .master = Precision::kFp32, .reduce = Precision::kFp32},
      .steps = 5};
  const Model model = example_model(example);
  const TrainingOutcome found = train_example(example, model);
  const TrainingOutcome& exact = expected_training(example, model);
  example.tp = example.pp = example.dp = 1;
  example.microbatches *= 2;
  example.sequence_parallel = false;
  const TrainingOutcome one_rank = train_example(example, model);
  for (size_t step = 0; step < found.losses.size(); ++step) {
    for (const TrainingOutcome& other : {one_rank, exact}) {
      EXPECT_NEAR(found.losses[step], other.losses[step], 0.01 * other.losses[step]) << "step " << step + 1;
    }
  }
  for (const TrainingOutcome& other : {one_rank, exact})
    EXPECT_NEAR(found.norms.front(), other.norms.front(), 0.02 * other.norms.front());
  EXPECT_LT(found.losses.back(), found.losses.front());
}

TEST(TrainingForms, WeightsThatAreNotTrainedStayToTheBit) {
  TrainingExample example{
      .fixture = "qwen2_vl_untied", .tp = 2, .pp = 2, .dp = 2, .sequence_parallel = true, .zero = 2};
  example.trainable = {{"visual.*", false}, {"visual.merger.*", true}, {"*norm*", false}};
  const Model model = example_model(example);
  const TrainingOutcome found = train_example(example, model);
  const TrainingOutcome& expected = expected_training(example, model);
  TrainingExample untrained = example;
  untrained.steps = 0;
  const TrainingOutcome before = train_example(untrained, model);
  std::map<bool, int> counts;
  for (const auto& [name, weight] : before.weights) {
    bool is_trained = true;
    for (const TrainRule& rule : example.trainable) is_trained = is_meant(rule, name) ? rule.train : is_trained;
    ++counts[is_trained];
    const at::Tensor& after = found.weights.at(name);
    EXPECT_EQ(weight.equal(after), !is_trained) << name;
    EXPECT_LT((after - expected.weights.at(name)).abs().max().item<double>(), 1e-9) << name;
  }
  EXPECT_GT(counts[false], 10);
  EXPECT_GT(counts[true], 10);
}

TEST(TrainingForms, RowsOfAScheduleTrainToTheSameBitsAsItsName) {
  std::vector<TrainingExample> examples;
  for (const char* schedule : {"gpipe", "1f1b", "zb_h1"})
    examples.push_back({.fixture = "llama_scaled", .pp = 2, .schedule = schedule, .microbatches = 3});
  for (const char* schedule : {"interleaved_1f1b", "zb_v"})
    examples.push_back({.fixture = "llama_scaled", .pp = 2, .vpp = 2, .schedule = schedule, .microbatches = 4});
  examples.push_back({.fixture = "qwen2_vl_untied",
                      .pp = 2,
                      .microbatches = 4,
                      .beside = {{ModuleKind::kVision, {.dp = 2, .form = EncoderForm::kFill, .live = 3}}}});
  for (TrainingExample example : examples) {
    SCOPED_TRACE(example.name());
    const Model model = example_model(example);
    const TrainingOutcome by_name = train_example(example, model);
    example.is_explicit = true;
    ASSERT_TRUE(example_training_plan(example, model).schedule.rows);
    const TrainingOutcome by_rows = train_example(example, model);
    EXPECT_EQ(by_rows.losses, by_name.losses);
    EXPECT_EQ(by_rows.norms, by_name.norms);
    for (const auto& [name, weight] : by_name.weights) EXPECT_TRUE(weight.equal(by_rows.weights.at(name))) << name;
  }
}

TEST(TrainingForms, RowsOfExpertsAreCountedOnce) {
  for (const TrainingExample& example :
       {TrainingExample{.fixture = "qwen3_moe_norm", .dp = 2, .recompute = {.full = 1}},
        TrainingExample{.fixture = "qwen3_moe_norm", .tp = 2, .pp = 2, .dp = 2, .ep = 2, .sequence_parallel = true}}) {
    const Model model = example_model(example);
    const Plan plan = example_training_plan(example, model);
    std::mutex guard;
    const auto error = run_ranks({.size = plan.world_size}, [&](World& world) {
      at::set_num_threads(1);
      const auto made = TrainingRank::create(world, plan, {.seed = kExampleSeed});
      TrainingRank& rank = **made;
      const std::vector<RawInputs> samples = example_batch(example, rank.numbers(), rank.vocabulary(), 1);
      const StepReport report = rank.step(example_microbatches(example, rank, samples), 10, kExampleRate);
      int64_t tokens = 0;
      for (const RawInputs& sample : samples) tokens += sample.input_ids.size(0);
      const std::lock_guard lock(guard);
      ASSERT_TRUE(report.experts);
      ASSERT_EQ(report.experts->rows.size(), 8u);
      int64_t rows = 0;
      for (const int64_t count : report.experts->rows) rows += count;
      EXPECT_EQ(rows, tokens * 3 * 2) << "three experts of every token, in two layers";
      EXPECT_GE(report.experts->imbalance, 1);
      EXPECT_LE(report.experts->imbalance, 8.0 / 3);
      EXPECT_EQ(report.experts->moved_bytes > 0, example.ep > 1);
    });
    EXPECT_FALSE(error);
  }
}

TEST(TrainingForms, AnEncoderWithAnotherZeroStageIsRefused) {
  const TrainingExample example{.fixture = "qwen2_vl_untied", .dp = 2, .zero = 1};
  Plan plan = example_training_plan(example, example_model(example));
  plan.modules.front().zero = 2;
  const auto error = run_ranks({.size = 2}, [&](World& world) {
    const auto made = TrainingRank::create(world, plan, {});
    ASSERT_FALSE(made.ok());
    EXPECT_EQ(made.error().field, "modules.vision.zero");
  });
  EXPECT_FALSE(error);
}

// A legal plan is what the forms above stand for.
TEST(TrainingForms, ArePlansThatTheCheckerAllows) {
  for (const TrainingExample& example : forms()) {
    const std::vector<Violation> violations = check_plan(example_training_plan(example, example_model(example)));
    EXPECT_TRUE(violations.empty()) << example.name() << ": " << violations.front().field << ": "
                                    << violations.front().message;
  }
}

INSTANTIATE_TEST_SUITE_P(Plans, TrainedForms, testing::ValuesIn(forms()),
                         [](const auto& named) { return named.param.name(); });

}  // namespace
}  // namespace weft::forms_test
