#include "weft/pipeline/pace.h"

#include "tests/support/pipeline/example_training.h"

namespace weft {
namespace {

TEST(Pace, IsAskedOnceForEveryActionThatComputes) {
  const TrainingExample example{.fixture = "qwen2_vl_untied",
                                .pp = 2,
                                .schedule = "zb_h1",
                                .microbatches = 4,
                                .beside = {{ModuleKind::kVision, {.dp = 2, .form = EncoderForm::kFill, .live = 4}}}};
  const Plan plan = example_training_plan(example, example_model(example));
  const auto error = run_ranks({.size = plan.world_size}, [&](World& world) {
    std::vector<Action> asked;
    const auto pace = [&](const Action& action) {
      asked.push_back(action);
      return 0.0;
    };
    auto rank = TrainingRank::create(world, plan, {.seed = kExampleSeed, .pace = pace});
    WEFT_CHECK(rank.ok(), "{}", rank.error().message());
    const auto samples = example_batch(example, (*rank)->numbers(), (*rank)->vocabulary(), 1);
    const StepReport report =
        (*rank)->step(example_step_batch(**rank, samples), num_example_targets(samples), kExampleRate);
    std::vector<Action> computed;
    std::set<ActionKind> kinds;
    for (const TimelineEvent& event : report.events) {
      if (event.stream != Stream::kCompute) continue;
      computed.push_back(event.action);
      kinds.insert(event.action.kind);
    }
    EXPECT_EQ(asked, computed) << "rank " << world.rank();
    for (const ActionKind kind : {ActionKind::kForward, ActionKind::kBackwardInput, ActionKind::kBackwardWeight,
                                  ActionKind::kEncodeForward, ActionKind::kEncodeBackward, ActionKind::kUpdate}) {
      EXPECT_TRUE(kinds.contains(kind)) << name_of(kind);
    }
  });
  EXPECT_FALSE(error) << error->message();
}

TEST(Pace, SleepsWhatItIsTold) {
  const auto start = std::chrono::steady_clock::now();
  keep_pace([](const Action& action) { return action.microbatch == 1 ? 20.0 : 0.0; }, {ActionKind::kForward, 0, 1});
  EXPECT_GE(std::chrono::steady_clock::now() - start, std::chrono::milliseconds(20));
}

}  // namespace
}  // namespace weft
