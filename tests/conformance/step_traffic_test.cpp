// What plans say that their ranks send and receive in a step, against ranks that run them.
#include "weft/meaning/step_traffic.h"

#include "tests/conformance/step_run.h"
#include "weft/meaning/group_names.h"
#include "weft/meaning/trainable.h"
#include "weft/spec/weight_names.h"

namespace weft {
namespace {

constexpr uint64_t kFirstTrafficSeed = 2000, kFirstRulesSeed = 4000;

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
  return kinds;
}

/// Whether all that is trained of the audio encoder are the marks of clips, which no row passes. Plans like that are
/// left out: the prediction has gradients of rows that such an encoder gives, and ranks have none.
bool trains_marks_alone(const Plan& plan) {
  if (plan.model.find(ModuleKind::kAudio) == nullptr) return false;
  const Trainable trainable(plan);
  const int64_t exit = num_blocks(*plan.model.find(ModuleKind::kAudio)) - 1;
  if (trainable.first_trained(ModuleKind::kAudio) != exit) return false;
  const std::vector<bool> trained = trainable.weights_of(ModuleKind::kAudio, exit);
  return trained.back() && std::count(trained.begin(), trained.end(), true) == 1;
}

class StepTraffic : public testing::TestWithParam<TinyModel> {};

/// Of every group of every rank: those of one rank move nothing. More plans are drawn until all kinds were there.
TEST_P(StepTraffic, IsToTheByteWhatRanksMove) {
  const auto least = draws(uint64_t{12}), most = 5 * least;
  std::set<std::string> missing;
  for (uint64_t i = 1; (i <= least || (i <= most && !missing.empty())) && !HasFailure(); ++i) {
    const uint64_t seed = kFirstTrafficSeed + i;
    const StepRun run = run_drawn_step(GetParam(), seed);
    SCOPED_TRACE("seed " + std::to_string(seed) + ": " + settings_text(run.plan));
    if (i == 1) missing = all_kinds(run.plan);
    if (trains_marks_alone(run.plan)) continue;
    for (int64_t rank = 0; rank < run.plan.world_size; ++rank) {
      const std::vector<GroupTraffic>& found = run.traffic[static_cast<size_t>(rank)];
      EXPECT_EQ(text(step_traffic(run.plan, run.load, rank)), text(found)) << "rank " << rank;
      for (const GroupTraffic& group : found) missing.erase(group.name);
    }
  }
  for (const std::string& kind : missing) ADD_FAILURE() << "no plan that was drawn has a group '" << kind << "'";
}

/// Where gradients stop inside a module: the block with its first trained weight talks for some operators only.
TEST_P(StepTraffic, EndsWhereNoWeightBeforeIsTrained) {
  const Model model = example_model({.fixture = GetParam().fixture, .sizes = GetParam().sizes});
  const auto stops_inside = [](const Plan& plan) {
    if (trains_marks_alone(plan)) return false;
    const Trainable trainable(plan);
    return std::any_of(plan.modules.begin(), plan.modules.end(), [&](const ModulePlan& module) {
      const bool talks = module.tp > 1 || module.cp > 1 || module.ep > 1;
      return talks && trainable.trains(module.kind) && trainable.first_trained(module.kind) > 0;
    });
  };
  uint64_t seed = kFirstRulesSeed;
  for (uint64_t i = 1; i <= draws(uint64_t{8}) && !HasFailure(); ++i, ++seed) {
    while (!stops_inside(draw_step_plan(model, seed))) ++seed;
    const StepRun run = run_drawn_step(GetParam(), seed);
    SCOPED_TRACE("seed " + std::to_string(seed) + ": " + settings_text(run.plan));
    for (int64_t rank = 0; rank < run.plan.world_size; ++rank)
      EXPECT_EQ(text(step_traffic(run.plan, run.load, rank)), text(run.traffic[static_cast<size_t>(rank)]))
          << "rank " << rank;
  }
}

INSTANTIATE_TEST_SUITE_P(Models, StepTraffic, tiny_models(), [](const auto& test) { return test.param.name; });

}  // namespace
}  // namespace weft
