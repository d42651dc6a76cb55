#include "weft/search/simplicity.h"

#include <gtest/gtest.h>

#include "tests/support/source_tree.h"
#include "weft/spec/scenario.h"

namespace weft::simplicity_test {
namespace {

TEST(Simplicity, KindsComeFirstThenContextThenZeroThenExportThenTheRest) {
  // Each is simpler than the next, whatever comes later in the order.
  const std::vector<Simplicity> order = {
      {.kinds = 1, .cp = 8, .zero = 3, .lacks_export = true, .extras = 9},
      {.kinds = 2, .cp = 1, .zero = 0, .lacks_export = false, .extras = 0},
      {.kinds = 2, .cp = 1, .zero = 0, .lacks_export = false, .extras = 1},
      {.kinds = 2, .cp = 1, .zero = 0, .lacks_export = true, .extras = 0},
      {.kinds = 2, .cp = 1, .zero = 1, .lacks_export = false, .extras = 0},
      {.kinds = 2, .cp = 2, .zero = 0, .lacks_export = false, .extras = 0},
      {.kinds = 3, .cp = 1, .zero = 0, .lacks_export = false, .extras = 0},
  };
  for (size_t i = 0; i < order.size(); ++i) {
    for (size_t j = 0; j < order.size(); ++j) EXPECT_EQ(order[i] < order[j], i < j) << i << " " << j;
  }
}

TEST(Simplicity, EveryKindOfParallelismCountsButDataParallelism) {
  const Candidate plain{{.dp = 8}};
  const Simplicity base = simplicity_of(plain, 1);
  EXPECT_EQ(base.kinds, 0);
  const auto with = [&](auto change) {
    Candidate c = plain;
    change(c);
    return simplicity_of(c, 1);
  };
  EXPECT_EQ(with([](Candidate& c) { c.tp = 2; }).kinds, 1);
  EXPECT_EQ(with([](Candidate& c) { c.cp = 2; }).kinds, 1);
  EXPECT_EQ(with([](Candidate& c) { c.ep = 2; }).kinds, 1);
  EXPECT_EQ(with([](Candidate& c) { c.pp = 2; }).kinds, 1);
  EXPECT_EQ(with([](Candidate& c) { c.pp = c.vpp = 2; }).kinds, 2);
  EXPECT_EQ(with([](Candidate& c) { c.dp = 1; }).kinds, 0);
  EXPECT_EQ(with([](Candidate& c) { c.encoders[0].placement = ModulePlacement::kColocated; }).kinds, 1);
  EXPECT_EQ(with([](Candidate& c) { c.balance = Balance::kLlm; }).kinds, base.kinds + 1);
  EXPECT_EQ(with([](Candidate& c) { c.balance = Balance::kLlm; }),
            with([](Candidate& c) { c.balance = Balance::kBoth; }));
  // Of a model without encoders, nothing is said about them.
  Candidate text = plain;
  text.encoders[0].placement = ModulePlacement::kColocated;
  EXPECT_EQ(simplicity_of(text, 0), simplicity_of(plain, 0));
  for (const Simplicity& more :
       {with([](Candidate& c) { c.zero = 1; }), with([](Candidate& c) { c.schedule = ScheduleName::kZbH1; }),
        with([](Candidate& c) { c.stages_are_neighbours = true; })})
    EXPECT_LT(base, more);
  // The size of a group is no kind of its own.
  EXPECT_EQ(with([](Candidate& c) { c.dp = 16; }), base);
}

TEST(Simplicity, NoCandidateIsSimplerThanWhatItsDegreesAllow) {
  const Scenarios scenarios(source_tree().string() + "/scenarios");
  Plan problem = plan_without_settings(*scenarios.model("tiny-vl"), *scenarios.cluster("local_cpu"),
                                       *scenarios.workload("vl_sft"));
  problem.workload.global_batch_samples = 8;
  PlanSpace space;
  int64_t num_tight = 0;
  for (const std::vector<int64_t>& zeros : {std::vector<int64_t>{0, 1, 2, 3}, {2, 3}}) {
    space.zero.values = zeros;
    for (const Candidate& frame : enumerate_frames(problem, space)) {
      const FrameChoices choices = choices_of(frame, problem, space);
      const Simplicity least = least_simplicity(frame, space);
      for (const Candidate& c : enumerate_candidates(frame, choices)) {
        const Simplicity simplicity = simplicity_of(c, 1);
        ASSERT_LE(least, simplicity);
        ASSERT_LE(least_simplicity(c, choices, 1), simplicity);
        num_tight += least == simplicity ? 1 : 0;
      }
    }
  }
  EXPECT_GT(num_tight, 0);
}

TEST(Simplicity, SaysWhatAPlanDoesWithout) {
  const Candidate simple{{.dp = 8, .zero = 1}};
  Candidate other{{.cp = 2, .dp = 4, .zero = 3}};
  EXPECT_EQ(what_is_simpler(simple, other, 0),
            (std::vector<std::string>{"no context parallelism", "ZeRO 1 instead of 3"}));
  other = simple;
  other.schedule = ScheduleName::kZbH1;
  EXPECT_EQ(what_is_simpler(simple, other, 0), (std::vector<std::string>{"1f1b instead of zb_h1"}));
  EXPECT_TRUE(what_is_simpler(simple, simple, 0).empty());
}

}  // namespace
}  // namespace weft::simplicity_test
