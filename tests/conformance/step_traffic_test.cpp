// What plans say that their ranks send and receive in a step, against ranks that run them.
#include "weft/meaning/step_traffic.h"

#include "tests/conformance/step_calls_compared.h"
#include "tests/conformance/step_run.h"
#include "weft/meaning/check.h"
#include "weft/meaning/group_names.h"
#include "weft/meaning/step_calls.h"
#include "weft/meaning/trainable.h"
#include "weft/program/name_weights.h"

namespace weft {
namespace {

constexpr uint64_t kFirstTrafficSeed = 2000, kFirstRulesSeed = 4000, kFirstMarksSeed = 6000;
/// Of plans, until one is of the kind that a test wants.
constexpr uint64_t kMostDraws = 1000;

/// All kinds that plans of a model can have.
std::set<std::string> all_kinds(const Plan& plan) {
  std::set<std::string> kinds = {group_names::kWorld,   group_names::kTensor,  group_names::kPipeline,
                                 group_names::kData,    group_names::kUlysses, group_names::kRing,
                                 group_names::kSameKeys};
  const bool has_experts = num_experts(plan.model.modules.back()) > 1;
  if (plan.model.has_tied_embeddings) kinds.insert(group_names::kTiedEnds);
  if (has_experts) kinds.insert({group_names::kExperts, group_names::kSameExperts, group_names::kBalance});
  // In which rows of inline encoders go to their tokens, and routers count rows for their loss.
  if (has_experts || plan.modules.size() > 1) kinds.insert(group_names::kContext);
  for (const ModulePlan& module : plan.modules) {
    if (!module.is_encoder()) continue;
    kinds.insert(group_names::rows_of(module.kind));
    kinds.insert(group_names::gradients_of(module.kind));
  }
  // Where every query has a key of its own, no two ranks have the same.
  const auto& core =
      std::get<Attention>(op_named(plan.model.modules.back().distinct_layers.front(), "attention.core").shape);
  if (core.heads == core.kv_heads) kinds.erase(group_names::kSameKeys);
  return kinds;
}

void expect_same(const StepRun& run) {
  for (int64_t rank = 0; rank < run.plan.world_size; ++rank) {
    const auto index = static_cast<size_t>(rank);
    EXPECT_EQ(text(step_traffic(run.plan, run.load, rank)), text(run.traffic[index])) << "rank " << rank;
    EXPECT_EQ(first_difference(step_calls(run.plan, run.load, rank), ordered_calls(run.plan, run.calls[index])), "")
        << "rank " << rank;
  }
}

/// Of an audio encoder, the marks of clips, which no row passes.
Plan with_marks_alone(Plan plan) {
  plan.workload.frozen.push_back(ModuleKind::kAudio);
  plan.trainable = {{"*audio_bos_eos_token*", true}};
  return plan;
}

class StepTraffic : public testing::TestWithParam<TinyModel> {};

/// Of every group of every rank, in sums and, but for bridges and all ranks' sums, call by call in order: groups of one
/// rank move nothing. More plans are drawn until all kinds were there.
TEST_P(StepTraffic, IsToTheByteWhatRanksMoveInThatOrder) {
  const auto least = draws(uint64_t{12}), most = 5 * least;
  std::set<std::string> missing;
  uint64_t num_plans = 0;
  for (uint64_t i = 1; (i <= least || (i <= most && !missing.empty())) && !HasFailure(); ++i, ++num_plans) {
    const uint64_t seed = first_seed(kFirstTrafficSeed + i);
    const StepRun run = run_drawn_step(GetParam(), seed);
    SCOPED_TRACE("seed " + std::to_string(seed) + ": " + settings_text(run.plan));
    if (i == 1) missing = all_kinds(run.plan);
    expect_same(run);
    for (const auto& groups : run.traffic) {
      for (const GroupTraffic& group : groups) missing.erase(group.name);
    }
  }
  record_plans(num_plans);
  if (!has_usual_seeds()) return;
  for (const std::string& kind : missing) ADD_FAILURE() << "no plan that was drawn has a group '" << kind << "'";
}

/// Where gradients stop inside a module: the block with its first trained weight talks for some operators only.
TEST_P(StepTraffic, EndsWhereNoWeightBeforeIsTrained) {
  const Model model = example_model({.fixture = GetParam().fixture, .sizes = GetParam().sizes});
  const auto stops_inside = [](const Plan& plan) {
    const Trainable trainable(plan);
    return std::any_of(plan.modules.begin(), plan.modules.end(), [&](const ModulePlan& module) {
      const bool talks = module.tp > 1 || module.cp > 1 || module.ep > 1;
      return talks && trainable.trains(module.kind) && trainable.first_trained(module.kind) > 0;
    });
  };
  uint64_t seed = first_seed(kFirstRulesSeed), num_plans = 0;
  for (uint64_t i = 1; i <= draws(uint64_t{8}) && !HasFailure(); ++i, ++seed, ++num_plans) {
    const uint64_t last = seed + kMostDraws;
    while (seed < last && !stops_inside(draw_step_plan(model, seed))) ++seed;
    ASSERT_LT(seed, last) << "no plan whose gradients stop inside a module is drawn";
    const StepRun run = run_drawn_step(GetParam(), seed);
    SCOPED_TRACE("seed " + std::to_string(seed) + ": " + settings_text(run.plan));
    expect_same(run);
  }
  record_plans(num_plans);
}

/// No gradients come of an encoder's rows then, inside it or, where it is in the pipeline, behind it.
TEST(MarksOfClips, HaveNoGradients) {
  TrainingExample example{.fixture = kTinyOmni.fixture, .sizes = kTinyOmni.sizes, .microbatches = 1, .steps = 1};
  const Model model = example_model(example);
  uint64_t seed = first_seed(kFirstMarksSeed);
  for (uint64_t i = 1; i <= draws(uint64_t{6}) && !testing::Test::HasFailure(); ++i, ++seed) {
    // An order of actions that a plan stores may be of an encoder that learns more, or nothing.
    const uint64_t last = seed + kMostDraws;
    while (seed < last && !check_plan(with_marks_alone(draw_step_plan(model, seed))).empty()) ++seed;
    ASSERT_LT(seed, last) << "no plan allows to train the marks alone";
    const Plan plan = with_marks_alone(draw_step_plan(model, seed));
    example.mbs = plan.workload.global_batch_samples;
    example.frozen = plan.workload.frozen;
    const StepRun run = run_step(example, plan);
    SCOPED_TRACE("seed " + std::to_string(seed) + ": " + settings_text(run.plan));
    expect_same(run);
  }
}

INSTANTIATE_TEST_SUITE_P(Models, StepTraffic, tiny_models(), [](const auto& test) { return test.param.name; });

}  // namespace
}  // namespace weft
