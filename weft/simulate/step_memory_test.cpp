#include "weft/simulate/step_memory.h"

#include <gtest/gtest.h>

#include "tests/support/draws.h"
#include "tests/support/meaning/random_plan.h"
#include "tests/support/meaning/uniform_load.h"
#include "tests/support/source_tree.h"
#include "weft/meaning/macro_batch.h"
#include "weft/simulate/rank_memory.h"
#include "weft/spec/model_reader.h"

namespace weft {
namespace {

// The walk is compared with ranks that train (tests/conformance), on tiny models. Here what searches reckon with is
// compared with the walk, on real ones: samples are all alike, so that the plan's high load is the step's.
struct AgreementCase {
  const char* model;
  UniformSample sample;
};

void PrintTo(const AgreementCase& test, std::ostream* out) {
  *out << test.model;
}

class PlanMemory : public testing::TestWithParam<AgreementCase> {};

TEST_P(PlanMemory, IsNearThatOfAStep) {
  const auto model = read_model_file(source_tree() / "scenarios/models" / GetParam().model);
  ASSERT_TRUE(model.ok()) << model.error().message();
  const UniformSample& sample = GetParam().sample;
  for (uint64_t seed = 1; seed <= draws(uint64_t{12}); ++seed) {
    Plan plan = random_plan(
        *model, seed, {.allows_ep = false, .allows_frozen = false, .allows_rules = false, .allows_balance = false});
    sample.write_to(plan.workload);
    plan.precision = {Precision::kBf16, Precision::kFp32, Precision::kFp32};
    const auto said = memory_of_ranks(plan);
    ASSERT_TRUE(said.ok()) << said.error().message();
    const StepLoad load = uniform_load(plan, sample);
    double most_said = 0, most_walked = 0;
    for (int64_t rank = 0; rank < plan.world_size; ++rank) {
      const MemorySplit& split = (*said)[static_cast<size_t>(rank)];
      most_said = std::max(most_said, split.total() - split.rounding - split.reserved);
      const auto walked = step_memory(plan, load, rank);
      ASSERT_TRUE(walked.ok()) << walked.error().message();
      most_walked = std::max(most_walked, static_cast<double>(walked->settled_peak_bytes()));
    }
    // Below where a CPU converts a weight's gradient on the way.
    EXPECT_GE(most_said, 0.9 * most_walked) << "seed " << seed << ": " << settings_text(plan);
    // Above where all that a stage scatters would be on its way at once, and where no macro batch is full: ranks are
    // priced as the one that takes most.
    const bool has_full_batches = std::all_of(plan.modules.begin(), plan.modules.end(), [&](const ModulePlan& m) {
      return m.is_in_pipeline() || num_macro_batches(plan, m) >= 1;
    });
    EXPECT_LE(most_said, (has_full_batches ? 1.2 : 1.4) * most_walked)
        << "seed " << seed << ": " << settings_text(plan);
  }
}

INSTANTIATE_TEST_SUITE_P(Models, PlanMemory,
                         testing::Values(AgreementCase{"llama3-8b.json", {.text = 2048}},
                                         AgreementCase{"qwen2-vl-7b.json", {.text = 1024, .patches = 4096}},
                                         AgreementCase{"qwen3-vl-4b.json", {.text = 1024, .patches = 4096}}),
                         [](const auto& test) { return std::string(test.param.model).substr(0, 5); });

}  // namespace
}  // namespace weft
