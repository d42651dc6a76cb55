#include "weft/search/placed_beside.h"

#include <random>

#include <gtest/gtest.h>

#include "tests/support/draws.h"
#include "tests/support/source_tree.h"
#include "weft/search/enumerate.h"
#include "weft/search/place_pipeline.h"
#include "weft/search/workbench.h"
#include "weft/spec/scenario.h"

namespace weft::placed_beside_test {
namespace {

const Scenarios kScenarios(source_tree().string() + "/scenarios");

/// A pipeline of a small model on devices that are short of memory.
class TightPipeline {
 public:
  explicit TightPipeline(ScheduleName schedule)
      : c_({{.pp = 4, .dp = 2}}),
        problem_(tight_problem()),
        bench_(space_, problem_, *PlanSimulator::create(problem_)) {
    c_.schedule = schedule;
    bench_.fill(c_);
  }

  /// The least makespan with this beside the pipeline, as the exact solver finds it; infinite where nothing fits.
  double placed_ms(const PlanStages::Beside& beside) {
    SolverShape& shape = bench_.shape_of(c_).solver();
    StagePrices prices;
    PlanStages stages(bench_.plan(), bench_.pipeline_costs(), shape, prices, beside, space_.recompute,
                      /*has_memory_limit=*/true);
    if (!stages.can_fit()) return kInfinity;
    const PlacedPipeline placed = place_pipeline(stages, shape, {.deadline = Deadline(1000.0)});
    EXPECT_TRUE(placed.is_exhausted);
    return placed.makespan_ms;
  }

 private:
  static Plan tight_problem() {
    Model model = *kScenarios.model("llama3-8b");
    model.modules.back().layers.resize(8);
    Cluster cluster = *kScenarios.cluster("dgx_h100");
    cluster.device.memory_gib = 26;
    Workload workload = *kScenarios.workload("text_4k");
    workload.global_batch_samples = 16;
    return plan_without_settings(model, cluster, workload);
  }

  PlanSpace space_;
  Candidate c_;
  Plan problem_;
  Workbench bench_;
};

/// Few values each, so that one draw often has no more of anything than another.
PlanStages::Beside random_beside(std::mt19937_64& random) {
  PlanStages::Beside beside = nothing_beside(4);
  const auto draw = [&](double most) { return most * static_cast<double>(random() % 4) / 3; };
  const double static_gib = draw(4), held_gib = draw(4), moment_gib = draw(6);
  const double update_ms = draw(40), backward_ms = draw(200);
  beside.entry_transfer_ms = draw(30);
  for (size_t rank = random() % 2 == 0 ? 0 : 3; rank < 4; ++rank) {
    beside.memory[rank] = {.static_gib = static_gib, .held_gib = held_gib, .moment_gib = moment_gib};
    beside.update_ms[rank] = update_ms;
    beside.backward_ms[rank] = backward_ms;
  }
  return beside;
}

TEST(PlacedBeside, NeverSaysMoreThanTheExactPlacement) {
  for (const ScheduleName schedule : {ScheduleName::k1f1b, ScheduleName::kZbH1}) {
    TightPipeline pipeline(schedule);
    std::mt19937_64 random(7);
    PlacedBeside known;
    int num_known = 0, num_over = 0, num_recomputed = 0;
    const double free_ms = pipeline.placed_ms(nothing_beside(4));
    ASSERT_LT(free_ms, kInfinity);
    for (int i = 0; i < (kIsSanitized ? 30 : 150); ++i) {
      const PlanStages::Beside beside = random_beside(random);
      const double known_ms = known.least_ms(beside), placed_ms = pipeline.placed_ms(beside);
      EXPECT_LE(known_ms, placed_ms * (1 + kPrecision)) << "draw " << i;
      num_known += known_ms > free_ms ? 1 : 0;
      num_over += placed_ms == kInfinity ? 1 : 0;
      num_recomputed += placed_ms > free_ms && placed_ms < kInfinity ? 1 : 0;
      known.add(beside, placed_ms);
      EXPECT_GE(known.least_ms(beside), placed_ms);
    }
    EXPECT_GE(num_known, kIsSanitized ? 1 : 10);
    EXPECT_GE(num_over, 1);
    EXPECT_GE(num_recomputed, 5);
  }
}

}  // namespace
}  // namespace weft::placed_beside_test
