#include "weft/engine/evaluations.h"

#include <gtest/gtest.h>

namespace weft {
namespace {

TEST(Evaluations, EndARunThatHasNotGainedForAsLongAsItIsPatient) {
  const TrainConfig::Evaluation settings{.interval_steps = 5, .data = {}, .patience = 2, .min_improvement = 0.1};
  Evaluations evaluations(settings);
  EXPECT_FALSE(evaluations.is_due(4, 100));
  EXPECT_TRUE(evaluations.is_due(5, 100));
  EXPECT_TRUE(evaluations.is_due(98, 98)) << "after the last step too";
  EXPECT_TRUE(evaluations.add(5, 3.0));
  EXPECT_FALSE(evaluations.add(10, 2.95)) << "not by as much as counts";
  EXPECT_FALSE(evaluations.ends_run());
  EXPECT_TRUE(evaluations.add(15, 2.8)) << "compared with the best, not with the one before";
  EXPECT_FALSE(evaluations.add(20, 2.9));
  EXPECT_FALSE(evaluations.ends_run());
  EXPECT_FALSE(evaluations.add(25, 2.75));
  EXPECT_TRUE(evaluations.ends_run());
  ASSERT_TRUE(evaluations.best());
  EXPECT_EQ(evaluations.best()->step, 15);
  EXPECT_EQ(evaluations.best()->loss, 2.8);
}

TEST(Evaluations, StandInACheckpointAsTheyStood) {
  const TrainConfig::Evaluation settings{.interval_steps = 1, .data = {}, .patience = 3};
  Evaluations before(settings), after(settings);
  EXPECT_TRUE(before.to_json().empty()) << "nothing is kept of none";
  for (const double loss : {2.0, 1.0 / 3, 0.5, 0.4}) before.add(1, loss);
  Json run = {{"steps", 4}};
  run.update(before.to_json());
  after.restore(run, 4);
  EXPECT_EQ(after.best()->loss, 1.0 / 3);
  EXPECT_EQ(after.without_gain(), 2);
  EXPECT_EQ(Evaluations::settings_in(run), (Json{{"steps", 4}}));
  Evaluations fresh(settings);
  fresh.restore(Json{{"steps", 4}}, 4);
  EXPECT_FALSE(fresh.best());
}

TEST(Evaluations, OfStepsThatTheCheckpointHasNotDoneAreNotTaken) {
  const TrainConfig::Evaluation settings{.interval_steps = 1, .data = {}, .patience = 3};
  const auto is_taken = [&](const Json& best_step, const Json& best_loss, const Json& without_gain) {
    Evaluations evaluations(settings);
    const Json stood = {{"best_step", best_step}, {"best_loss", best_loss}, {"without_gain", without_gain}};
    evaluations.restore(Json{{"evaluations", stood}}, 4);
    return evaluations.best().has_value();
  };
  EXPECT_TRUE(is_taken(4, 0.5, 0));
  for (const Json& wrong : {Json(-1), Json(5), Json(1e30), Json(2.5), Json(UINT64_MAX)}) {
    EXPECT_FALSE(is_taken(wrong, 0.5, 0)) << wrong;
    EXPECT_FALSE(is_taken(4, 0.5, wrong)) << wrong;
  }
  EXPECT_FALSE(is_taken(4, std::numeric_limits<double>::infinity(), 0));
}

TEST(Evaluations, NeitherOfLossesThatAreNoNumbersIsAGain) {
  const TrainConfig::Evaluation settings{.interval_steps = 1, .data = {}, .patience = 1};
  Evaluations evaluations(settings);
  evaluations.add(1, 2.0);
  EXPECT_FALSE(evaluations.add(2, std::numeric_limits<double>::quiet_NaN()));
  EXPECT_TRUE(evaluations.ends_run());
}

}  // namespace
}  // namespace weft
