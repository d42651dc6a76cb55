#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/tensor.h>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "tests/parity/fixture.h"
#include "weft/engine/continuation.h"
#include "weft/engine/predictor.h"
#include "weft/models/samples.h"

namespace weft::parity {
namespace {

class Greedy : public testing::TestWithParam<Case> {};

Inputs prepared(const LoadedModel& loaded, const RawInputs& raw, at::ScalarType type) {
  const auto inputs = prepare_inputs(loaded.network.numbers(), loaded.network.decoder().vocabulary(), raw);
  WEFT_CHECK(inputs.ok(), "{}", inputs.error().message());
  return inputs->to(options_of(type));
}

/// The sample that the fixture's tokens continue.
Inputs prompt_of(const LoadedModel& loaded, const LoadedCase& given, at::ScalarType type) {
  const std::vector<RawInputs> samples = split_samples(loaded.network.numbers(), given.raw);
  return prepared(loaded, samples.at(given.facts.at("greedy").at("prompt_sample").get<size_t>()), type);
}

TEST_P(Greedy, TokensAreHuggingFaces) {
  const LoadedModel loaded = load_model(GetParam().folder, options_of(at::kFloat));
  const LoadedCase given = load_case(GetParam(), loaded, options_of(at::kFloat));
  const auto predictor = Predictor::load(loaded.model, GetParam().folder, options_of(at::kFloat));
  ASSERT_TRUE(predictor.ok()) << predictor.error().message();
  const Inputs prompt = prompt_of(loaded, given, at::kFloat);
  const Json& greedy = given.facts.at("greedy");
  const at::Tensor last = prompt.positions.select(1, prompt.positions.size(1) - 1);
  EXPECT_TRUE(last.eq(greedy.at("first_position").get<int64_t>() - 1).all().item<bool>()) << last;
  const auto expected = greedy.at("tokens").get<std::vector<int64_t>>();
  const auto found = predictor->generate(prompt, {.max_new_tokens = std::ssize(expected)});
  ASSERT_TRUE(found.ok()) << found.error().message();
  EXPECT_EQ(found->tokens, expected) << "smallest margin " << greedy.at("smallest_margin");
  EXPECT_FALSE(found->reached_end);
}

TEST_P(Greedy, AnEndStopsWhereItFirstAppears) {
  const LoadedModel loaded = load_model(GetParam().folder, options_of(at::kFloat));
  const LoadedCase given = load_case(GetParam(), loaded, options_of(at::kFloat));
  const auto predictor = Predictor::load(loaded.model, GetParam().folder, options_of(at::kFloat));
  ASSERT_TRUE(predictor.ok()) << predictor.error().message();
  auto expected = given.facts.at("greedy").at("tokens").get<std::vector<int64_t>>();
  const int64_t end = expected[5];
  expected.erase(std::find(expected.begin(), expected.end(), end) + 1, expected.end());
  const auto found = predictor->generate(prompt_of(loaded, given, at::kFloat),
                                         {.max_new_tokens = 16, .end_ids = {int64_t{1} << 30, end}});
  ASSERT_TRUE(found.ok()) << found.error().message();
  EXPECT_EQ(found->tokens, expected);
  EXPECT_TRUE(found->reached_end);
}

/// Every sample of the case, continued by its tokens in Hugging Face's order, whatever the model itself would choose.
TEST_P(Greedy, KeptKeysAndValuesChangeNothing) {
  const at::NoGradGuard no_graph;
  const LoadedModel loaded = load_model(GetParam().folder, options_of(at::kDouble));
  const LoadedCase given = load_case(GetParam(), loaded, options_of(at::kDouble));
  const auto tokens = given.facts.at("greedy").at("tokens").get<std::vector<int64_t>>();
  double worst = 0;
  for (const RawInputs& sample : split_samples(loaded.network.numbers(), given.raw)) {
    const Inputs prompt = prepared(loaded, sample, at::kDouble);
    const int64_t length = prompt.ids.size(0);
    const auto added = static_cast<int64_t>(tokens.size());

    Inputs whole = prompt;
    std::vector<at::Tensor> positions = {prompt.positions};
    for (int64_t i = 0; i < added; ++i) {
      positions.push_back(prompt.positions.narrow(1, length - 1, 1) + (i + 1));
    }
    whole.ids = at::cat({prompt.ids, at::tensor(tokens, at::kLong)});
    whole.positions = at::cat(positions, 1);
    whole.samples = PackedSegments({length + added});
    const at::Tensor expected = loaded.network.logits(whole, {});

    Continuation text(loaded.network, prompt, added);
    for (int64_t i = 0; i <= added; ++i) {
      const double difference = relative_difference(text.logits(), expected[length - 1 + i]);
      EXPECT_LE(difference, 1e-12) << "after " << i << " tokens";
      worst = std::max(worst, difference);
      if (i < added) text.append(tokens[static_cast<size_t>(i)]);
    }
  }
  fmt::print("  logits: largest relative difference {:.2e}\n", worst);
}

TEST_P(Greedy, SamplesOnTheirOwnGiveTheLogitsOfTheBatch) {
  const at::NoGradGuard no_graph;
  const LoadedModel loaded = load_model(GetParam().folder, options_of(at::kDouble));
  const LoadedCase given = load_case(GetParam(), loaded, options_of(at::kDouble));
  const at::Tensor expected = loaded.network.logits(given.inputs, {});
  std::vector<at::Tensor> found;
  for (const RawInputs& sample : split_samples(loaded.network.numbers(), given.raw)) {
    found.push_back(loaded.network.logits(prepared(loaded, sample, at::kDouble), {}));
  }
  EXPECT_LE(relative_difference(at::cat(found), expected), 1e-12);
}

INSTANTIATE_TEST_SUITE_P(Fixtures, Greedy, testing::ValuesIn(all_cases()),
                         [](const auto& named) { return named.param.text(); });

}  // namespace
}  // namespace weft::parity
