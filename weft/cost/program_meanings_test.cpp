#include "weft/cost/program_meanings.h"

#include <gtest/gtest.h>

#include "tests/support/program/two_products.h"
#include "weft/program/program_module.h"
#include "weft/program/program_text.h"

namespace weft::program_meanings_test {
namespace {

std::shared_ptr<const BlockProgram> layer_of_two_products() {
  const auto program = parse_program(two_products_program({}), "two");
  WEFT_CHECK(program.ok(), "{}", program.error().message());
  return model_of(*program)->module.distinct_layers.front().program;
}

TEST(ProgramMeanings, AreMadeOnceForEveryBlockAndItsRanks) {
  ProgramMeanings meanings;
  const auto layer = layer_of_two_products(), other = layer_of_two_products();
  const auto two = meanings.of(layer, {.tp = 2});
  EXPECT_EQ(meanings.of(layer, {.tp = 2}), two);
  EXPECT_NE(meanings.of(layer, {.tp = 4}), two);
  EXPECT_NE(meanings.of(layer, {.tp = 2, .reduces_first = true}), two);
  EXPECT_NE(meanings.of(other, {.tp = 2}), two);
  EXPECT_EQ(&two->block(), layer.get());
  EXPECT_EQ(meanings.of(layer, {.tp = 4})->flow().grid.size(0), 4);
}

TEST(ProgramMeanings, OutliveTheOwnersOfTheirBlocks) {
  ProgramMeanings meanings;
  auto layer = layer_of_two_products();
  const auto meaning = meanings.of(layer, {.tp = 2});
  const BlockProgram* address = layer.get();
  layer.reset();
  // Others cannot get its address, so that none is taken for it.
  for (int i = 0; i < 20; ++i) EXPECT_NE(layer_of_two_products().get(), address);
  EXPECT_EQ(meaning->block().program.operators.size(), layer_of_two_products()->program.operators.size());
}

}  // namespace
}  // namespace weft::program_meanings_test
