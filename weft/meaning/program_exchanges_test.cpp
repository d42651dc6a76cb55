#include "weft/meaning/program_exchanges.h"

#include <map>
#include <tuple>

#include <gtest/gtest.h>

#include "tests/support/program/two_products.h"
#include "weft/program/program_module.h"
#include "weft/program/program_strategy.h"
#include "weft/program/program_text.h"

namespace weft::program_exchanges_test {
namespace {

Module two_products() {
  const auto program = parse_program(two_products_program({}), "two");
  WEFT_CHECK(program.ok(), "{}", program.error().message());
  auto model = model_of(*program);
  WEFT_CHECK(model.ok(), "{}", model.error().message());
  return std::move(model->module);
}

/// What happens in a layer, how often: the pass, the operation, elements of the tensor and bytes of one.
using Listed = std::map<std::tuple<BlockPass, StepKind, int64_t, int64_t>, int>;

Listed listed(const Module& module, int64_t samples) {
  const ProgramMeaning meaning(*module.distinct_layers.front().program, {.tp = 2, .reduces_first = true});
  Listed list;
  for (const ProgramExchange& each : meaning.exchanges(meaning.lengths(samples), 2))
    ++list[{each.pass, each.step->kind, each.step->before.num_elements(), each.element_bytes}];
  return list;
}

TEST(ProgramExchanges, FeaturesThatAreCutAreSummedOnceEachWay) {
  const Listed expected = {{{BlockPass::kForward, StepKind::kAllReduce, 3 * 6 * 4, 2}, 1},
                           {{BlockPass::kBackwardInput, StepKind::kAllReduce, 3 * 6 * 4, 2}, 1}};
  EXPECT_EQ(listed(two_products(), 3), expected);
}

TEST(ProgramExchanges, RowsThatAreCutAreGatheredAndWeightsGradientsSummed) {
  const auto rows = with_strategy(two_products(), {{"layer", {{.pattern = "*", .words = {{"tp", "s"}}}}}}, 2);
  ASSERT_TRUE(rows.ok()) << rows.error().message();
  // Gradients of weights are summed in fp32.
  const Listed expected = {{{BlockPass::kForward, StepKind::kAllGather, 3 * 6 * 4, 2}, 1},
                           {{BlockPass::kBackwardInput, StepKind::kAllGather, 3 * 6 * 4, 2}, 1},
                           {{BlockPass::kBackwardWeight, StepKind::kAllReduce, 10 * 4, 4}, 2}};
  EXPECT_EQ(listed(*rows, 3), expected);
}

TEST(ProgramExchanges, WhatAllRanksDoAlikeMovesNothing) {
  const auto same = with_strategy(two_products(), {{"layer", {{.pattern = "*", .words = {{"tp", "same"}}}}}}, 2);
  ASSERT_TRUE(same.ok()) << same.error().message();
  EXPECT_EQ(listed(*same, 3), Listed{});
}

TEST(ProgramExchanges, RanksHaveTheirPartsOfValues) {
  const Module module = two_products();
  const BlockProgram& block = *module.distinct_layers.front().program;
  const ProgramMeaning meaning(block, {.tp = 4});
  const RunLengths lengths = meaning.lengths(3);
  const size_t up = *block.program.find_value("up"), x = *block.program.find_value("x");
  // Ten features on four ranks.
  const std::vector<int64_t> features = {3, 3, 2, 2};
  for (int64_t rank = 0; rank < 4; ++rank) {
    EXPECT_EQ(meaning.elements(up, lengths, rank), 3 * 6 * features[static_cast<size_t>(rank)]);
    EXPECT_EQ(meaning.elements(x, lengths, rank), 3 * 6 * 4);
  }
  EXPECT_EQ(meaning.elements(up, lengths, std::nullopt), 3 * 6 * 3);
}

}  // namespace
}  // namespace weft::program_exchanges_test
