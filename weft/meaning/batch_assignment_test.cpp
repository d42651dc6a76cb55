#include "weft/meaning/batch_assignment.h"

#include <gtest/gtest.h>

namespace weft {
namespace {

TEST(BatchAssignment, DealsTheLastMacroBatchShort) {
  const BatchAssignment assignment =
      assign_in_order({.llm = {.data_parallel = 2, .microbatches = 3, .mbs = 2},
                       .encoders = {{ModuleKind::kVision, {.data_parallel = 4, .mbs_scale = 1}}}});
  EXPECT_EQ(assignment.llm, (BatchAssignment::Shares{{{0, 1}, {4, 5}, {8, 9}}, {{2, 3}, {6, 7}, {10, 11}}}));
  EXPECT_EQ(assignment.encoders.at(ModuleKind::kVision),
            (BatchAssignment::Shares{{{0, 1}, {8, 9}}, {{2, 3}, {10, 11}}, {{4, 5}, {}}, {{6, 7}, {}}}));
}

}  // namespace
}  // namespace weft
