#include "tests/support/pipeline/example_training.h"
#include "weft/meaning/check.h"

namespace weft::experts_over_tp_test {
namespace {

/// Experts that are whole, on tensor-parallel ranks too.
TrainingExample spread(TrainingExample example) {
  if (example.fixture == "llama_tied") example.fixture = "qwen3_moe_norm";
  example.sequence_parallel = true;
  example.experts_over_tp = true;
  return example;
}

class ExpertsOverTp : public testing::TestWithParam<TrainingExample> {};

TEST_P(ExpertsOverTp, EqualOneRank) {
  const TrainingExample& example = GetParam();
  const Model model = example_model(example);
  const Plan plan = example_training_plan(example, model);
  for (const Violation& violation : check_plan(plan)) ADD_FAILURE() << violation.field << " " << violation.message;
  expect_same_training(train_example(example, model), expected_training(example, model));
}

std::vector<TrainingExample> plans() {
  const std::string four_heads = R"({"num_attention_heads": 4, "num_key_value_heads": 2})";
  std::vector<TrainingExample> all;
  // Among tensor-parallel ranks alone, with copies of experts among them, and across replicas.
  all.push_back(spread({.tp = 2, .ep = 2}));
  all.push_back(spread({.sizes = four_heads, .tp = 4, .ep = 2, .microbatches = 3}));
  all.push_back(spread({.sizes = four_heads, .tp = 4, .dp = 2, .ep = 8}));
  all.push_back(spread({.tp = 2, .dp = 2, .ep = 2, .mbs = 2}));
  all.push_back(spread({.tp = 2, .dp = 2, .ep = 4}));
  all.push_back(
      spread({.fixture = "qwen3_moe_mixed", .sizes = R"({"num_local_experts": 6})", .tp = 3, .dp = 2, .ep = 6}));
  // With rows that context parallelism shares out, too.
  all.push_back(spread({.tp = 2, .cp = 2, .ep = 4, .mbs = 2}));
  all.push_back(spread({.tp = 2, .cp = 2, .dp = 2, .ep = 8, .balance_coefficient = 0.3}));
  // Loads that routers keep even, that meet on one rank, and ranks without rows.
  all.push_back(spread({.tp = 2, .dp = 2, .ep = 4, .microbatches = 3, .balance_coefficient = 0.3}));
  all.push_back(spread({.tp = 2, .dp = 2, .ep = 4, .crowds_experts = true}));
  all.push_back(spread({.tp = 2, .ep = 2, .microbatches = 3, .has_masked_sample = true, .has_short_sample = true}));
  // Over pipelines, with states divided and blocks that run again.
  for (const int64_t zero : {1, 2, 3}) {
    all.push_back(spread({.tp = 2, .pp = 2, .dp = 2, .ep = 2, .zero = zero, .microbatches = 4}));
    all.push_back(spread({.tp = 2, .dp = 2, .ep = 4, .zero = zero, .buckets_mb = 0.001, .recompute = {.full = 1}}));
  }
  all.push_back(spread({.tp = 2, .pp = 2, .dp = 2, .ep = 4, .zero = 2, .schedule = "zb_h1", .microbatches = 4}));
  all.push_back(spread({.tp = 2, .dp = 2, .ep = 4, .trainable = {{"*.mlp.*", false}}}));
  return all;
}

INSTANTIATE_TEST_SUITE_P(Plans, ExpertsOverTp, testing::ValuesIn(plans()),
                         [](const auto& test) { return test.param.name(); });

}  // namespace
}  // namespace weft::experts_over_tp_test
