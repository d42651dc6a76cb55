// What the plan's half calls weights, against the models that are run.
#include <gtest/gtest.h>

#include "tests/support/source_tree.h"
#include "weft/models/network.h"
#include "weft/program/name_weights.h"
#include "weft/spec/adapters.h"
#include "weft/spec/model_reader.h"

namespace weft {
namespace {

class WeightNames : public testing::TestWithParam<const char*> {};

void expect_same_names(const Model& model) {
  WholeParameters maker(at::TensorOptions().dtype(at::kFloat));
  const Network network = *Network::create(model, maker);
  std::vector<std::vector<std::string>> run, planned;
  for (const ParameterPtr& parameter : maker.all()) {
    auto& names = run.emplace_back();
    for (const WeightPiece& piece : parameter->spec.pieces) {
      const bool is_new = !piece.name.empty() && (names.empty() || names.back() != piece.name);
      if (is_new) names.push_back(piece.name);
    }
  }
  for (const Module& module : model.modules) {
    for (int64_t place = 0; place < num_blocks(module); ++place) {
      for (auto& names : weight_names(module, place)) planned.push_back(std::move(names));
    }
  }
  std::sort(run.begin(), run.end());
  std::sort(planned.begin(), planned.end());
  EXPECT_EQ(planned, run);
}

TEST_P(WeightNames, AreThoseOfTheModelThatRuns) {
  const Model model = *read_model_file(source_tree() / "tests/parity/fixtures" / GetParam());
  expect_same_names(model);
  expect_same_names(*with_adapters(model, {{.targets = {"*"}}}, "test"));
}

INSTANTIATE_TEST_SUITE_P(Fixtures, WeightNames,
                         testing::Values("gpt2", "gpt2_untied", "llama_bias", "llama_tied", "qwen2_tied", "qwen3",
                                         "qwen3_moe_norm", "qwen3_moe_mixed", "qwen3_vl_moe", "qwen2_vl_tied",
                                         "qwen2_vl_untied", "qwen2_5_vl", "qwen2_5_omni"),
                         [](const auto& test) { return std::string(test.param); });

}  // namespace
}  // namespace weft
