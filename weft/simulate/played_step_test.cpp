#include "weft/simulate/played_step.h"

#include <gtest/gtest.h>

#include "tests/support/draws.h"
#include "tests/support/meaning/random_plan.h"
#include "tests/support/source_tree.h"
#include "weft/meaning/rank_row.h"
#include "weft/simulate/drawn_samples.h"
#include "weft/spec/model_reader.h"

namespace weft::played_step_test {
namespace {

TEST(PlayedStep, EveryRankDoesItsRowAndPartsOfAnActionAreItsTime) {
  int64_t num_encoded = 0, num_shared = 0;
  for (const char* fixture : {"qwen2_vl_untied", "qwen2_5_omni", "qwen3_moe_norm"}) {
    const Model model = *read_model_file(source_tree() / "tests/parity/fixtures" / fixture / "config.json");
    const uint64_t num_plans = draws(uint64_t{12});
    for (uint64_t seed = 1; seed <= num_plans; ++seed) {
      const Plan plan = random_plan(model, seed);
      SCOPED_TRACE(settings_text(plan));
      Result<PlanSimulator> simulator = PlanSimulator::create(plan);
      ASSERT_TRUE(simulator.ok()) << simulator.error().message();
      const Schedule schedule = *playable_schedule(plan);
      const SampleWork work(plan, simulator->costs());
      DrawnSamples samples(plan);
      const PlayedStep played = play_step(*simulator, plan, schedule, work, samples.batch(0));
      EXPECT_DOUBLE_EQ(played.step_time_ms, simulator->run_drawn(plan, schedule, work, samples.batch(0)));
      EXPECT_GE(played.makespan_ms, (1 - 1e-9) * played.step_time_ms);
      ASSERT_EQ(std::ssize(played.timeline.ranks), plan.world_size);
      for (int64_t rank = 0; rank < plan.world_size; ++rank) {
        const auto at = static_cast<size_t>(rank);
        const auto& events = played.timeline.ranks[at];
        ASSERT_EQ(played.times[at].size(), events.size());
        if (!row_of_rank(plan, schedule, rank)) {
          EXPECT_TRUE(events.empty());
          continue;
        }
        for (size_t i = 0; i < events.size(); ++i) {
          const ActionKind kind = events[i].action.kind;
          if (!is_pipeline_compute(kind) && !is_encoder_compute(kind)) continue;
          const ActionTime& time = played.times[at][i];
          double sum = time.communication_ms + time.host_ms;
          for (const auto& [module, ms] : time.compute_ms) sum += ms;
          const double ms = events[i].end_ms - events[i].start_ms;
          EXPECT_NEAR(sum, ms, 1e-6 * ms + 1e-9) << to_text(events[i].action) << " of rank " << rank;
          num_encoded += is_encoder_compute(kind) ? 1 : 0;
          num_shared += time.compute_ms.size() > 1 ? 1 : 0;
        }
      }
    }
  }
  EXPECT_GT(num_encoded, 0);
  EXPECT_GT(num_shared, 0) << "no stage had blocks of two modules";
}

}  // namespace
}  // namespace weft::played_step_test
