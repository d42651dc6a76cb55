// Adapters of linear layers, trained by plans of every kind and compared with one rank.
#include "tests/support/draws.h"
#include "tests/support/meaning/random_plan.h"
#include "tests/support/pipeline/example_training.h"
#include "tests/support/pipeline/tiny_models.h"
#include "tests/support/spec/random_adapters.h"

namespace weft::adapter_forms_test {
namespace {

constexpr const char* kAll = R"({"adapters": [{"rank": 3, "alpha": 6, "targets": ["*"]}]})";
constexpr const char* kSome =
    R"({"adapters": [{"rank": 2, "alpha": 5, "targets": ["k_proj", "v_proj", "down_proj"]}]})";
/// Other ranks for some layers, and none for the first.
constexpr const char* kMixed = R"({"adapters": [
    {"rank": 2, "targets": ["*.layers.1.*_proj"]}, {"rank": 4, "alpha": 2, "targets": ["*.layers.1.mlp.*"]}]})";
constexpr const char* kDropped = R"({"adapters": [
    {"rank": 3, "alpha": 6, "dropout": 0.3, "targets": ["q_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]}]})";

constexpr const char* kOfExperts = R"({"adapters": [{"rank": 2, "targets": ["*.mlp.experts.*"]}]})";
constexpr const char* kHalfOfExperts = R"({"adapters": [{"rank": 2, "targets": ["*.experts.*.up_proj", "q_proj"]}]})";

TrainingExample adapted(TrainingExample example, const char* adapters, const char* name) {
  Json sizes = Json::parse(example.sizes);
  sizes.merge_patch(Json::parse(adapters));
  example.sizes = sizes.dump();
  example.sizes_name = name;
  example.steps = 5;
  example.epsilon = 1e-5;
  return example;
}

class AdapterForms : public testing::TestWithParam<TrainingExample> {};

TEST_P(AdapterForms, EqualOneRank) {
  const TrainingExample& example = GetParam();
  const Model model = example_model(example);
  const TrainingOutcome& expected = expected_training(example, model);
  expect_same_training(train_example(example, model), expected);
  // They have learnt: `up` begins with zeros.
  bool has_up = false;
  for (const auto& [name, weight] : expected.weights) {
    if (!name.ends_with(".lora_B.weight")) continue;
    has_up = true;
    EXPECT_GT(weight.abs().max().item<double>(), 0) << name;
  }
  EXPECT_TRUE(has_up);
}

std::vector<TrainingExample> forms() {
  std::vector<TrainingExample> all;
  const auto add = [&](TrainingExample example, const char* adapters = kAll, const char* name = "all") {
    all.push_back(adapted(std::move(example), adapters, name));
  };
  add({.fixture = "llama_tied"});
  add({.fixture = "llama_bias", .tp = 2});
  add({.fixture = "llama_bias", .tp = 2, .sequence_parallel = true});
  add({.fixture = "qwen2_tied", .tp = 2, .sequence_parallel = true, .recompute = {.full = 1, .selective = 1}});
  add({.fixture = "qwen2_tied", .tp = 2, .pp = 2, .sequence_parallel = true}, kSome, "some");
  add({.fixture = "qwen3", .tp = 2, .pp = 2, .dp = 2, .zero = 2, .microbatches = 3}, kSome, "some");
  add({.fixture = "llama_scaled", .tp = 2, .dp = 2, .zero = 3}, kMixed, "mixed");
  add({.fixture = "llama_scaled", .pp = 2, .schedule = "zb_h1", .microbatches = 4}, kMixed, "mixed");
  add({.fixture = "llama_scaled", .tp = 2, .pp = 2, .sequence_parallel = true, .schedule = "zb_h1", .microbatches = 4});
  add({.fixture = "llama_tied", .cp = 2});
  add({.fixture = "llama_tied", .tp = 2, .cp = 2, .sequence_parallel = true});
  for (const int64_t zero : {1, 2, 3}) add({.fixture = "llama_tied", .dp = 3, .zero = zero, .buckets_mb = 0.001});
  add({.fixture = "qwen3_moe_norm", .dp = 2, .ep = 2});
  add({.fixture = "qwen3_moe_norm", .tp = 2, .pp = 2, .dp = 2, .ep = 2, .sequence_parallel = true});
  add({.fixture = "qwen3_moe_norm", .dp = 4, .ep = 2, .zero = 3});
  // Experts' own are copied, cut or spread with them.
  add({.fixture = "qwen3_moe_norm"});
  add({.fixture = "qwen3_moe_norm", .tp = 2});
  add({.fixture = "qwen3_moe_norm", .tp = 2, .dp = 2, .ep = 2, .zero = 2, .microbatches = 3});
  add({.fixture = "qwen3_moe_norm", .tp = 2, .dp = 2, .ep = 2, .sequence_parallel = true, .experts_over_tp = true});
  add({.fixture = "qwen3_moe_norm",
       .tp = 2,
       .dp = 2,
       .ep = 4,
       .sequence_parallel = true,
       .experts_over_tp = true,
       .zero = 1});
  add({.fixture = "qwen3_moe_norm", .tp = 2, .pp = 2, .dp = 2, .ep = 2, .schedule = "zb_h1", .microbatches = 4});
  add({.fixture = "qwen3_moe_mixed", .pp = 2, .dp = 2, .recompute = {.full = 1}}, kOfExperts, "experts");
  add({.fixture = "qwen3_moe_norm", .tp = 2, .dp = 2, .ep = 2}, kHalfOfExperts, "half");
  add({.fixture = "qwen3_vl_moe", .tp = 2, .dp = 2, .ep = 2, .sequence_parallel = true});
  add({.fixture = "qwen2_vl_untied", .tp = 2, .sequence_parallel = true});
  add({.fixture = "qwen2_vl_untied", .tp = 2, .pp = 2, .microbatches = 3});
  add({.fixture = "qwen2_5_vl", .tp = 2, .pp = 2, .dp = 2, .sequence_parallel = true, .zero = 1, .microbatches = 3});
  add({.fixture = "qwen2_5_omni", .tp = 2, .dp = 2, .sequence_parallel = true, .zero = 1});
  add({.fixture = "qwen2_vl_untied",
       .pp = 2,
       .dp = 2,
       .microbatches = 4,
       .beside = {{ModuleKind::kVision, {.tp = 2, .dp = 2, .mbs_scale = 2, .zero = 1}}}});
  // Adapters in the llm alone: the encoder is not trained, and nothing goes back to it.
  add({.fixture = "qwen2_vl_untied",
       .pp = 2,
       .dp = 2,
       .microbatches = 4,
       .beside = {{ModuleKind::kVision, {.tp = 2, .dp = 2, .mbs_scale = 2}}}},
      kSome, "some");
  add({.fixture = "qwen2_vl_untied", .tp = 2, .pp = 2, .sequence_parallel = true}, kSome, "some");
  // What is dropped is the same on every plan.
  add({.fixture = "llama_tied", .tp = 2, .sequence_parallel = true}, kDropped, "dropped");
  add({.fixture = "llama_tied", .tp = 2, .cp = 2, .recompute = {.full = 1}}, kDropped, "dropped");
  add({.fixture = "llama_tied", .pp = 2, .dp = 2, .zero = 2, .schedule = "zb_h1", .microbatches = 4}, kDropped,
      "dropped");
  // Beside them, weights that have none may be trained.
  TrainingExample norms = adapted({.fixture = "llama_tied", .tp = 2, .dp = 2, .zero = 2}, kAll, "all");
  norms.trainable = {{.weights = "*norm.weight", .train = true}};
  all.push_back(norms);
  return all;
}

INSTANTIATE_TEST_SUITE_P(Plans, AdapterForms, testing::ValuesIn(forms()),
                         [](const auto& test) { return test.param.name(); });

class AdaptersOnRandomPlans : public testing::TestWithParam<TinyModel> {};

/// What a fresh model has.
NamedWeights fresh_weights(const Model& model) {
  WholeParameters maker(at::TensorOptions().dtype(at::kDouble));
  const Network network = *Network::create(model, maker);
  initialize_weights(maker.all(), kExampleSeed);
  return NamedWeights(maker.all());
}

TEST_P(AdaptersOnRandomPlans, EqualOneRankAndLeaveEveryOtherWeightAsItWas) {
  TrainingExample example{.fixture = GetParam().fixture, .sizes = GetParam().sizes, .steps = 5, .epsilon = 1e-5};
  const Model base = example_model(example);
  const uint64_t num_plans = draws(uint64_t{20});
  std::set<int64_t> zeros;
  int64_t num_left = 0;
  for (uint64_t seed = 1; seed <= num_plans && !HasFailure(); ++seed) {
    const Model model = with_drawn_adapters(base, seed);
    Plan plan = random_plan(model, 7000 + seed);
    // A sample by itself may leave adapters of keys no gradient but rounding.
    for (uint64_t other = 1; plan.workload.global_batch_samples < 2; ++other)
      plan = random_plan(model, 7000 + 1000 * other + seed);
    SCOPED_TRACE("seed " + std::to_string(seed) + ": " + settings_text(plan) + " " +
                 to_json(adapters_of(model)).dump());
    plan.precision = example.precision;
    example.mbs = plan.workload.global_batch_samples;
    example.microbatches = 1;
    example.frozen = plan.workload.frozen;
    example.trainable = plan.trainable;
    const TrainingOutcome found = train_plan(example, plan);
    expect_same_training(found, train_by_hand(example, model));
    // Bit for bit: what is neither an adapter's nor trained by a rule.
    const NamedWeights fresh = fresh_weights(model);
    for (const auto& [name, weight] : found.weights) {
      bool is_trained = name.find(".lora_") != std::string::npos;
      for (const TrainRule& rule : plan.trainable) is_trained = is_meant(rule, name) ? rule.train : is_trained;
      if (is_trained) continue;
      EXPECT_TRUE(weight.equal(fresh.value(name))) << name;
      ++num_left;
    }
    for (const ModulePlan& module : plan.modules) zeros.insert(module.zero);
  }
  EXPECT_EQ(zeros, (std::set<int64_t>{0, 1, 2, 3})) << "not every stage of ZeRO was drawn";
  EXPECT_GT(num_left, 0);
}

INSTANTIATE_TEST_SUITE_P(Models, AdaptersOnRandomPlans, tiny_models(),
                         [](const auto& test) { return test.param.name; });

}  // namespace
}  // namespace weft::adapter_forms_test
