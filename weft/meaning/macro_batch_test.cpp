#include "weft/meaning/macro_batch.h"

#include <algorithm>

#include <gtest/gtest.h>

#include "weft/meaning/plan_batch.h"

namespace weft::macro_batch_test {
namespace {

Plan plan_of(int64_t llm_dp, int64_t microbatches, int64_t encoder_dp, int64_t mbs_scale) {
  Plan plan;
  plan.schedule = {.mbs = 2, .microbatches = microbatches};
  ModulePlan vision{
      .kind = ModuleKind::kVision, .placement = ModulePlacement::kColocated, .mbs_scale = mbs_scale, .mbs_parts = 2};
  vision.dp = encoder_dp;
  ModulePlan llm;
  llm.dp = llm_dp;
  plan.modules = {vision, llm};
  return plan;
}

TEST(MacroBatch, ARankTakesAsManySamplesAtOnceAsItIsDealtAtMost) {
  int num_short = 0;
  for (const int64_t llm_dp : {1, 2, 3}) {
    for (const int64_t microbatches : {1, 2, 5}) {
      for (const int64_t encoder_dp : {1, 2, 4}) {
        for (const int64_t mbs_scale : {1, 2, 3, 8, 20}) {
          const Plan plan = plan_of(llm_dp, microbatches, encoder_dp, mbs_scale);
          size_t most = 0;
          const BatchAssignment dealt = assign_batch(plan, {});
          for (const auto& rank : dealt.encoders.at(ModuleKind::kVision)) {
            for (const auto& macro : rank) most = std::max(most, macro.size());
          }
          const int64_t at_once = samples_at_once(plan, plan.modules.front());
          EXPECT_EQ(at_once, static_cast<int64_t>(most));
          EXPECT_NEAR(num_macro_batches(plan, plan.modules.front()) * static_cast<double>(at_once * encoder_dp),
                      static_cast<double>(2 * microbatches * llm_dp), 1e-9);
          size_t most_of_last = 0;
          for (const auto& rank : dealt.encoders.at(ModuleKind::kVision))
            most_of_last = std::max(most_of_last, rank.back().size());
          EXPECT_NEAR(last_macro_share(plan, plan.modules.front()) * static_cast<double>(at_once),
                      static_cast<double>(most_of_last), 1e-9);
          num_short += at_once < mbs_scale ? 1 : 0;
        }
      }
    }
  }
  EXPECT_GT(num_short, 0) << "some steps have fewer samples than a macro batch takes";
}

}  // namespace
}  // namespace weft::macro_batch_test
