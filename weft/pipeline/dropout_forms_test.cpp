// Every parallel form of a model with dropout against one rank: what is dropped is the same.
#include <set>

#include "tests/support/pipeline/example_training.h"
#include "weft/meaning/check.h"

namespace weft {
namespace {

class DropoutForms : public testing::TestWithParam<TrainingExample> {};

TEST_P(DropoutForms, EqualOneRank) {
  const TrainingExample& example = GetParam();
  const Model model = example_model(example);
  const Plan plan = example_training_plan(example, model);
  for (const Violation& violation : check_plan(plan)) ADD_FAILURE() << violation.field << " " << violation.message;
  expect_same_training(train_example(example, model), expected_training(example, model));
}

std::vector<TrainingExample> dropout_forms() {
  const TrainingExample plain{
      .fixture = "gpt2",
      .sizes = R"({"n_embd": 32, "n_head": 8, "n_layer": 4, "embd_pdrop": 0.2, "attn_pdrop": 0.3, "resid_pdrop": 0.1})",
      .sizes_name = "dropping",
      .mbs = 2};
  std::vector<TrainingExample> all;
  const auto add = [&](auto change) { change(all.emplace_back(plain)); };
  const RecomputeCounts whole{.full = 4}, attention{.selective = 4};
  add([](TrainingExample&) {});
  add([](TrainingExample& e) { e.tp = 2; });
  add([](TrainingExample& e) { e.tp = 4, e.sequence_parallel = true; });
  add([](TrainingExample& e) { e.pp = 2, e.vpp = 2, e.schedule = "interleaved_1f1b"; });
  add([](TrainingExample& e) { e.pp = 2, e.schedule = "zb_h1"; });
  add([](TrainingExample& e) { e.dp = 2, e.zero = 3; });
  add([](TrainingExample& e) { e.cp = 2; });
  add([](TrainingExample& e) { e.cp = 4, e.ulysses = 2; });
  add([&](TrainingExample& e) { e.tp = 2, e.cp = 2, e.recompute = whole; });
  add([&](TrainingExample& e) {
    e.tp = 2, e.cp = 2, e.ulysses = 2, e.sequence_parallel = true, e.recompute = attention;
  });
  add([&](TrainingExample& e) { e.tp = 2, e.pp = 2, e.dp = 2, e.zero = 2, e.recompute = whole; });
  add([&](TrainingExample& e) { e.cp = 2, e.pp = 2, e.recompute = attention; });
  return all;
}

TEST(DropoutForms, LoseSomethingInEveryOperatorThatDrops) {
  TrainingExample example = dropout_forms().front();
  std::set<double> losses = {train_by_hand(example, example_model(example)).losses.front()};
  for (const char* key : {"embd_pdrop", "attn_pdrop", "resid_pdrop"}) {
    Json sizes = Json::parse(dropout_forms().front().sizes);
    sizes[key] = 0;
    example.sizes = sizes.dump();
    losses.insert(train_by_hand(example, example_model(example)).losses.front());
  }
  EXPECT_EQ(losses.size(), 4U) << "leaving one of them out changes nothing";
}

INSTANTIATE_TEST_SUITE_P(Plans, DropoutForms, testing::ValuesIn(dropout_forms()),
                         [](const auto& test) { return test.param.name(); });

}  // namespace
}  // namespace weft
