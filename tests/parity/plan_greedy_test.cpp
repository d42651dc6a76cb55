// Texts that grow on a plan's ranks, against one rank.
#include <gtest/gtest.h>

#include "tests/parity/fixture.h"
#include "tests/support/draws.h"
#include "tests/support/meaning/random_plan.h"
#include "weft/engine/plan_predictor.h"
#include "weft/engine/prediction_plan.h"
#include "weft/models/samples.h"

namespace weft::parity {
namespace {

class PlanGreedy : public testing::TestWithParam<Case> {};

/// Every sample of a case, with a number of new tokens of its own.
std::vector<PlannedPrompt> prompts_of(const LoadedModel& loaded, const RawInputs& raw) {
  std::vector<PlannedPrompt> prompts;
  for (const RawInputs& sample : split_samples(loaded.network.numbers(), raw)) {
    auto inputs = prepare_inputs(loaded.network.numbers(), loaded.network.decoder().vocabulary(), sample);
    WEFT_CHECK(inputs.ok(), "{}", inputs.error().message());
    prompts.push_back({.raw = sample, .inputs = *std::move(inputs), .max_new_tokens = 3 + std::ssize(prompts) * 2 % 5});
  }
  return prompts;
}

struct Expected {
  std::vector<std::vector<int64_t>> tokens;
  std::vector<int64_t> end_ids;  ///< some that come up
};

Expected on_one_rank(const Case& which, const LoadedModel& loaded, const std::vector<PlannedPrompt>& prompts,
                     const Sampling& sampling) {
  const auto predictor = Predictor::load(loaded.model, which.folder, options_of(at::kDouble));
  WEFT_CHECK(predictor.ok(), "{}", predictor.error().message());
  Expected expected;
  for (size_t i = 0; i < prompts.size(); ++i) {
    const auto found = predictor->generate(prompts[i].inputs, {.max_new_tokens = prompts[i].max_new_tokens,
                                                               .end_ids = expected.end_ids,
                                                               .sampling = sampling,
                                                               .prompt_number = i});
    WEFT_CHECK(found.ok(), "{}", found.error().message());
    expected.tokens.push_back(found->tokens);
    if (i == 0) expected.end_ids = {found->tokens.back()};
  }
  // The first again, which ends earlier now if its last token came up before.
  const auto first = predictor->generate(
      prompts[0].inputs,
      {.max_new_tokens = prompts[0].max_new_tokens, .end_ids = expected.end_ids, .sampling = sampling});
  expected.tokens[0] = first->tokens;
  return expected;
}

TEST_P(PlanGreedy, TokensAreThoseOfOneRankWhateverThePlan) {
  const LoadedModel loaded = load_model(GetParam().folder, options_of(at::kDouble));
  const LoadedCase given = load_case(GetParam(), loaded, options_of(at::kDouble));
  const std::vector<PlannedPrompt> prompts = prompts_of(loaded, given.raw);
  for (uint64_t seed = 1; seed <= draws(uint64_t{3}) && !HasFailure(); ++seed) {
    const Sampling sampling{.temperature = seed % 3 == 0 ? 1.0 : 0, .top_p = 0.9, .seed = seed};
    const Expected expected = on_one_rank(GetParam(), loaded, prompts, sampling);
    const uint64_t own = seed * 1000 + std::hash<std::string>{}(GetParam().text()) % 1000;
    const Plan trained = random_plan(loaded.model, own, {.world_size = seed % 2 == 0 ? 4 : 8});
    SCOPED_TRACE("seed " + std::to_string(own) + ": " + settings_text(trained));
    const auto plan = prediction_plan(trained, Precision::kFp64);
    ASSERT_TRUE(plan.ok()) << plan.error().message();
    const auto found = generate_on_ranks(
        {.plan = *plan, .model = GetParam().folder, .end_ids = expected.end_ids, .sampling = sampling}, prompts);
    ASSERT_TRUE(found.ok()) << found.error().message();
    ASSERT_TRUE(found->has_value());
    ASSERT_EQ((*found)->prompts.size(), prompts.size());
    for (size_t i = 0; i < prompts.size(); ++i) EXPECT_EQ((*found)->prompts[i].tokens, expected.tokens[i]) << i;
  }
}

INSTANTIATE_TEST_SUITE_P(Fixtures, PlanGreedy, testing::ValuesIn(all_cases()),
                         [](const auto& named) { return named.param.text(); });

}  // namespace
}  // namespace weft::parity
