#include "weft/search/enumerate.h"

#include <set>
#include <tuple>

#include <gtest/gtest.h>

#include "tests/support/source_tree.h"
#include "weft/spec/scenario.h"

namespace weft::enumerate_test {
namespace {

FrameChoices with_choices(const std::array<size_t, kMostEncoders>& counts) {
  FrameChoices choices;
  for (size_t e = 0; e < kMostEncoders; ++e) {
    for (size_t i = 0; i < counts[e]; ++i) choices.encoders[e].push_back({.tp = static_cast<int64_t>(i + 1)});
  }
  choices.schedules = {{ScheduleName::k1f1b, 1}, {ScheduleName::kInterleaved1f1b, 2}};
  choices.zeros = {{0, false}, {3, false}, {3, true}};
  return choices;
}

TEST(EncoderCombinations, AreAllOfThemInTheOrderOfNumbersWithTheseDigits) {
  for (size_t first = 1; first <= 4; ++first) {
    for (size_t second = 1; second <= 4; ++second) {
      const std::vector<EncoderIndices> found = encoder_combinations(with_choices({first, second}));
      ASSERT_EQ(found.size(), first * second);
      for (size_t i = 1; i < found.size(); ++i) EXPECT_LT(found[i - 1], found[i]);
      EXPECT_EQ(found.front(), (EncoderIndices{0, 0}));
      EXPECT_EQ(found.back(), (EncoderIndices{first - 1, second - 1}));
    }
  }
}

TEST(EncoderCombinations, AreNoneWhereAnEncoderHasNoChoice) {
  EXPECT_TRUE(encoder_combinations(with_choices({3, 0})).empty());
  EXPECT_TRUE(encoder_combinations(with_choices({0, 3})).empty());
}

TEST(EnumerateCandidates, ListsEveryCombinationOnce) {
  const FrameChoices choices = with_choices({3, 2});
  const std::vector<Candidate> candidates = enumerate_candidates({{.tp = 8}}, choices);
  ASSERT_EQ(static_cast<int64_t>(candidates.size()), choices.size());
  std::set<std::tuple<int64_t, int64_t, ScheduleName, int64_t, int64_t, bool>> distinct;
  for (const Candidate& c : candidates) {
    EXPECT_EQ(c.tp, 8);
    distinct.insert({c.encoders[0].tp, c.encoders[1].tp, c.schedule, c.vpp, c.zero, c.zero_keep_gathered});
  }
  EXPECT_EQ(distinct.size(), candidates.size());
}

TEST(EnumerateCandidates, EncodersRecomputeLayerByLayerWhereTheyMayNotFromTheirInputs) {
  const Scenarios scenarios(source_tree().string() + "/scenarios");
  Plan plan = plan_without_settings(*scenarios.model("tiny-vl"), *scenarios.cluster("local_cpu"),
                                    *scenarios.workload("vl_sft"));
  const auto num_recomputed = [&](const PlanSpace& space) {
    int64_t count = 0;
    for (const Candidate& frame : enumerate_frames(plan, space)) {
      const FrameChoices choices = choices_of(frame, plan, space);
      for (const EncoderChoice& choice : choices.encoders[0]) {
        if (choice.recompute_layers == 0) continue;
        ++count;
        Candidate c = frame;
        c.encoders[0] = choice;
        fill_plan(c, plan);
        const ModulePlan& vision = *plan.find(ModuleKind::kVision);
        EXPECT_EQ(count_of(vision.recompute_of(0, 0), BlockRecompute::kFull), vision.layers[0][0]);
      }
    }
    return count;
  };
  PlanSpace space;
  EXPECT_EQ(num_recomputed(space), 0);
  space.encoders[ModuleKind::kVision].recompute_from_inputs = false;
  EXPECT_GT(num_recomputed(space), 0);
  space.recompute.allows_full = false;
  EXPECT_EQ(num_recomputed(space), 0);
}

}  // namespace
}  // namespace weft::enumerate_test
