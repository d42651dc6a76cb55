#include <cmath>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "tests/support/draws.h"
#include "tests/support/meaning/random_plan.h"
#include "tests/support/source_tree.h"
#include "weft/simulate/plan_simulator.h"
#include "weft/spec/model_reader.h"

namespace weft {
namespace {

TEST(RandomPlans, AreSimulatedAndTheirTimesAddUp) {
  for (const char* fixture : {"qwen2_5_omni", "qwen3_moe_norm"}) {
    const Model model = *read_model_file(source_tree().string() + "/tests/parity/fixtures/" + fixture);
    for (uint64_t seed = 0; seed < draws(uint64_t{300}); ++seed) {
      const Plan plan = random_plan(model, seed);
      SCOPED_TRACE(fmt::format("seed {}: {}", seed, settings_text(plan)));
      const Result<PlanReport> report = simulate_plan(plan, {.batches = 2});
      ASSERT_TRUE(report.ok()) << report.error().message();
      ASSERT_TRUE(std::isfinite(report->step_time_ms) && report->step_time_ms > 0);
      ASSERT_TRUE(report->fits()) << "tiny models fit anywhere";
      for (const ScheduleRowReport& row : report->rows) {
        double sum = 0;
        for (const TimePart& part : kTimeParts) {
          ASSERT_GE(row.time.*part.value, 0) << part.key;
          sum += row.time.*part.value;
        }
        ASSERT_NEAR(sum, report->mean_batch_step_time_ms, 1e-6 * sum) << row.name;
      }
    }
  }
}

}  // namespace
}  // namespace weft
