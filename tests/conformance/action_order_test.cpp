// In which order plans say that their ranks act, against ranks that run them.
#include "tests/conformance/step_run.h"
#include "weft/meaning/plan_schedule.h"
#include "weft/schedule/lowering.h"
#include "weft/schedule/step_end.h"

namespace weft {
namespace {

constexpr uint64_t kFirstOrderSeed = 3000;

/// The row of the schedule that a rank goes by: its stage's, of the llm or of an encoder with ranks of its own; nothing
/// for idle ranks.
std::optional<size_t> row_of(const Plan& plan, const Schedule& schedule, int64_t rank) {
  std::optional<size_t> row;
  size_t encoder = 0;
  for (const ModulePlan& module : plan.modules) {
    const Mesh mesh = *mesh_of(module);
    if (mesh.contains(rank) && (!module.is_encoder() || module.placement == ModulePlacement::kDisjoint)) {
      const auto stage = static_cast<size_t>(mesh.coordinates_of(rank)[mesh.grid().axis("pp")]);
      row = module.is_encoder() ? static_cast<size_t>(schedule.encoders[encoder].groups[stage].front()) : stage;
    }
    encoder += module.is_in_pipeline() ? 0 : 1;
  }
  return row;
}

std::string text_of(const std::vector<Action>& actions) {
  std::string text;
  for (const Action& action : actions) text += to_text(action) + " ";
  return text;
}

class ActionOrder : public testing::TestWithParam<TinyModel> {};

TEST_P(ActionOrder, IsThatOfTheLoweredSchedule) {
  uint64_t num_plans = 0;
  for (uint64_t i = 1; i <= draws(uint64_t{6}) && !HasFailure(); ++i, ++num_plans) {
    const uint64_t seed = first_seed(kFirstOrderSeed + i);
    const StepRun run = run_drawn_step(GetParam(), seed);
    SCOPED_TRACE("seed " + std::to_string(seed) + ": " + settings_text(run.plan));
    const Result<Schedule> schedule = schedule_of(run.plan);
    ASSERT_TRUE(schedule.ok()) << schedule.error().message();
    const Result<Schedule> lowered = lower_schedule(with_step_end(*schedule));
    ASSERT_TRUE(lowered.ok()) << lowered.error().message();
    for (int64_t rank = 0; rank < run.plan.world_size; ++rank) {
      const std::optional<size_t> row = row_of(run.plan, *lowered, rank);
      EXPECT_EQ(text_of(row ? lowered->rows[*row] : std::vector<Action>()),
                text_of(run.actions[static_cast<size_t>(rank)]))
          << "rank " << rank;
    }
  }
  record_plans(num_plans);
}

INSTANTIATE_TEST_SUITE_P(Models, ActionOrder, tiny_models(), [](const auto& test) { return test.param.name; });

}  // namespace
}  // namespace weft
