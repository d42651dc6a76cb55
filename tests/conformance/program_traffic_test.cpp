// What plans of users' own programs say that ranks send and receive, against ranks that run them.
#include <gtest/gtest.h>

#include "tests/conformance/program_load.h"
#include "tests/conformance/step_calls_compared.h"
#include "tests/support/draws.h"
#include "tests/support/pipeline/example_programs.h"
#include "tests/support/program/random_strategy.h"
#include "weft/meaning/check.h"
#include "weft/meaning/step_traffic.h"

namespace weft::program_traffic_test {
namespace {

struct ProgramStep {
  std::vector<std::vector<GroupTraffic>> traffic;  ///< by rank
  std::vector<std::vector<GroupCall>> calls;       ///< by rank: the same in order
};

ProgramStep run_program_step(const TrainingExample& example, const Plan& plan) {
  ProgramStep run;
  run.traffic.resize(static_cast<size_t>(plan.world_size));
  run.calls.resize(run.traffic.size());
  thread_ranks().run(plan.world_size, [&](World& world) {
    at::set_num_threads(1);
    auto made = TrainingRank::create(world, plan, {.seed = kExampleSeed});
    WEFT_CHECK(made.ok(), "{}", made.error().message());
    TrainingRank& rank = **made;
    const ProgramNumbers& numbers = *rank.numbers().program;
    const auto samples = program_batch(numbers, 1, example.batch());
    const StepBatch batch = program_step_batch(rank, samples, 1);
    const TrafficList before = world.traffic();
    world.keep_calls();
    rank.step(batch, named_inputs(numbers, samples).num_targets, kExampleRate);
    run.traffic[static_cast<size_t>(world.rank())] = traffic_since(before, world.traffic());
    run.calls[static_cast<size_t>(world.rank())] = world.calls();
  });
  return run;
}

TEST(ProgramTraffic, IsToTheByteWhatRanksMoveInThatOrder) {
  const std::vector<std::string> programs = {encoder_program(0.1), tied_program(), mlp_program(), heads_program()};
  std::set<OperationKind> in_tensor_groups;
  for (uint64_t seed = 1; seed <= draws(uint64_t{45}) && !HasFailure(); ++seed) {
    std::mt19937_64 random(seed);
    const auto pick = [&](const auto& from) { return from[random() % from.size()]; };
    const Model model = program_example_model(programs[seed % 4]);
    TrainingExample example{.steps = 1};
    example.tp = pick(std::vector<int64_t>{2, 3, 4});
    example.dp = pick(std::vector<int64_t>{1, 2});
    example.zero = pick(std::vector<int64_t>{0, 1, 2, 3});
    example.mbs = pick(std::vector<int64_t>{1, 2, 3});
    example.microbatches = 4;
    if (seed % 4 != 2) {
      example.pp = pick(std::vector<int64_t>{1, 2});
      example.schedule = pick(std::vector<std::string>{"1f1b", "gpipe", "zb_h1"});
      example.recompute.full = static_cast<int64_t>(random() % 3);
    }
    if (seed % 5 == 0)
      example.precision = {.compute = Precision::kBf16, .master = Precision::kFp32, .reduce = Precision::kFp32};
    Plan plan = example_training_plan(example, model);
    if (seed % 3 == 1) plan.trainable = {{seed % 4 == 2 ? "w1" : "*layers.1.*", false}};
    if (seed % 3 != 0) plan = with_llm_strategy(plan, random_strategy(model.modules.back(), random));
    SCOPED_TRACE("seed " + std::to_string(seed) + ": " + example.name() + " " + to_json(plan.llm().strategy).dump());
    for (const Violation& violation : check_plan(plan)) ADD_FAILURE() << violation.field << " " << violation.message;
    const ProgramStep run = run_program_step(example, plan);
    const StepLoad load = program_load(plan);
    for (int64_t rank = 0; rank < plan.world_size; ++rank) {
      const auto index = static_cast<size_t>(rank);
      EXPECT_EQ(first_difference(step_calls(plan, load, rank), ordered_calls(plan, run.calls[index])), "")
          << "rank " << rank;
      EXPECT_EQ(text(step_traffic(plan, load, rank)), text(run.traffic[index])) << "rank " << rank;
      for (const GroupCall& call : run.calls[index]) {
        if (call.group == group_names::kTensor) in_tensor_groups.insert(call.kind);
      }
    }
  }
  EXPECT_EQ(in_tensor_groups, (std::set<OperationKind>{OperationKind::kAllReduce, OperationKind::kAllGather,
                                                       OperationKind::kReduceScatter, OperationKind::kAllToAll}));
}

}  // namespace
}  // namespace weft::program_traffic_test
