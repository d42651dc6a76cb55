#include "weft/meaning/held_state.h"

#include <algorithm>
#include <numeric>

#include <gtest/gtest.h>

#include "tests/support/source_tree.h"
#include "weft/plan/plan_json.h"
#include "weft/spec/model.h"

namespace weft {
namespace {

TEST(SnapshotBytes, RanksTogetherCopyTheModelOnce) {
  const auto path = source_tree() / "scenarios/plans/llama3-8b_gpipe_tp2_pp2_dp2.json";
  Plan plan = *read_plan_file(path);
  plan.world_size = 9;
  plan.idle_ranks = true;
  const std::vector<int64_t> bytes = snapshot_bytes(plan);
  ASSERT_EQ(bytes.size(), 9u);
  EXPECT_EQ(bytes[8], 0) << "an idle rank";
  // Master weights and two moments in fp32; norms are on both tensor-parallel ranks, and buckets are padded.
  const auto model = 12.0 * static_cast<double>(num_parameters(plan.model));
  const auto all = static_cast<double>(std::accumulate(bytes.begin(), bytes.end(), int64_t{0}));
  EXPECT_GE(all, model);
  EXPECT_LE(all, model * 1.01);
  // tp, cp, dp, pp: the first stage is the first half, and its data-parallel ranks have as much each.
  EXPECT_EQ(bytes[0], bytes[2]);
  EXPECT_EQ(bytes[1], bytes[3]);
  EXPECT_EQ(bytes[4], bytes[6]);
  EXPECT_NE(bytes[0], 0);
}

}  // namespace
}  // namespace weft
