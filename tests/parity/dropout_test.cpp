// Models that drop, against transformers: its own modules say where, and its masks are drawn by
// make_dropout_fixtures.py.
#include <fstream>

#include <ATen/TensorOperators.h>
#include <gtest/gtest.h>

#include "tests/parity/fixture.h"
#include "tests/support/source_tree.h"
#include "weft/models/load_weights.h"
#include "weft/models/tensor_file.h"

namespace weft::parity {
namespace {

class DroppingModels : public testing::TestWithParam<std::string> {};

StepDraws draws_of(const Json& facts, int64_t num_samples) {
  StepDraws draws{.seed = facts.at("seed").get<uint64_t>(), .step = facts.at("step").get<int64_t>()};
  for (int64_t sample = 0; sample < num_samples; ++sample) draws.samples.push_back(sample);
  return draws;
}

TEST_P(DroppingModels, HaveTheLossAndGradientsOfTransformersInDoubles) {
  const std::filesystem::path folder = source_tree() / "tests/parity/dropout";
  Json facts;
  std::ifstream(folder / (GetParam() + ".json")) >> facts;
  const auto expected = read_tensors(folder / (GetParam() + ".safetensors"));
  ASSERT_TRUE(expected.ok()) << expected.error().message();
  const std::string fixture = facts.at("fixture");
  const Case which{
      .fixture = fixture, .name = facts.at("case"), .folder = source_tree() / "tests/parity/fixtures" / fixture};
  const at::TensorOptions doubles = options_of(at::kDouble);
  for (const bool recomputes : {false, true}) {
    const LoadedModel loaded = load_model(which.folder, doubles, facts.at("config"));
    const auto num_samples = static_cast<int64_t>(load_case(which, loaded, doubles).raw.lengths.size());
    const LoadedCase given = load_case(which, loaded, doubles, draws_of(facts, num_samples));
    const at::Tensor loss = loaded.network.loss_sum(given.inputs, {.recomputes = recomputes}) /
                            static_cast<double>(given.inputs.num_targets());
    EXPECT_LE(relative_difference(loss, expected->at("loss")), 1e-12);
    EXPECT_GT(relative_difference(loss, given.expected.at("loss")), 1e-5) << "nothing is dropped";
    loss.backward();
    const NamedWeights weights(loaded.parameters);
    size_t compared = 0;
    for (const auto& [name, gradient] : *expected) {
      if (name == "loss") continue;
      const at::Tensor found = weights.file_gradient(name.substr(5), loaded.network.numbers().files);
      ASSERT_TRUE(found.defined()) << name;
      EXPECT_LE(relative_difference(found, gradient, 1e-3), 1e-11) << name;
      ++compared;
    }
    EXPECT_GT(compared, 20U);
  }
}

INSTANTIATE_TEST_SUITE_P(Fixtures, DroppingModels,
                         testing::Values("gpt2", "internvl", "internvl_norms", "qwen2_5_omni"),
                         [](const auto& test) { return test.param; });

}  // namespace
}  // namespace weft::parity
