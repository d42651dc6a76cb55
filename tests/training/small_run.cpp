#include "tests/training/small_run.h"

#include <cstring>

#include <ATen/ops/tensor.h>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "tests/support/pipeline/example_training.h"
#include "weft/spec/model_reader.h"

namespace weft::training {
namespace {

template <typename T>
T must(Result<T> result) {
  WEFT_CHECK(result.ok(), "{}", result.error().message());
  return *std::move(result);
}

TrainingExample example_of(const SmallRun& run) {
  TrainingExample example{.fixture = run.fixture,
                          .tp = run.tp,
                          .cp = run.cp,
                          .pp = run.pp,
                          .vpp = run.vpp,
                          .dp = run.dp,
                          .ep = run.ep,
                          .ulysses = run.cp_ulysses,
                          .encoder_ulysses = run.cp_ulysses,
                          .sequence_parallel = run.sequence_parallel,
                          .experts_over_tp = run.experts_over_tp,
                          .zero = run.zero,
                          .buckets_mb = run.buckets_mb,
                          .schedule = run.schedule,
                          .microbatches = run.microbatches,
                          .frozen = run.frozen,
                          .precision = run.precision};
  if (run.vision) {
    const bool is_disjoint = run.vision->pp > 0;
    example.beside[ModuleKind::kVision] = {
        .placement = is_disjoint ? ModulePlacement::kDisjoint : ModulePlacement::kColocated,
        .tp = run.vision->tp,
        .pp = is_disjoint ? run.vision->pp : 1,
        .dp = run.vision->dp,
        .form = is_disjoint ? EncoderForm::kStream : EncoderForm::kBefore,
        .zero = run.vision->zero};
  }
  return example;
}

}  // namespace

std::string SmallRun::text() const {
  std::string name = fmt::format("{}_tp{}{}_pp{}x{}_dp{}_zero{}_{}_{}_{}", fixture, tp, sequence_parallel ? "sp" : "",
                                 pp, vpp, dp, zero, schedule, name_of(precision.compute), name_of(precision.master));
  if (cp > 1) name += fmt::format("_cp{}u{}", cp, cp_ulysses);
  if (ep > 1) name += fmt::format("_ep{}{}", ep, experts_over_tp ? "tp" : "");
  for (const ModuleKind kind : frozen) name += fmt::format("_frozen_{}", name_of(kind));
  if (vision) name += fmt::format("_vision_tp{}_pp{}_dp{}_zero{}", vision->tp, vision->pp, vision->dp, vision->zero);
  return name;
}

void PrintTo(const SmallRun& run, std::ostream* out) {
  *out << run.text();
}

std::filesystem::path fixture_folder(const std::string& fixture) {
  return source_tree() / "tests/parity/fixtures" / fixture;
}

void add_surroundings(Plan& plan) {
  const std::filesystem::path scenarios = source_tree() / "scenarios";
  Workload workload = must(read_workload_file(scenarios / "workloads/text_4k.yaml"));
  workload.frozen = plan.workload.frozen;
  workload.global_batch_samples = plan.workload.global_batch_samples;
  plan.workload = std::move(workload);
  plan.cluster = must(read_cluster_file(scenarios / "clusters/local_cpu.yaml"));
  plan.cluster.nodes = 1;
  plan.cluster.devices_per_node = plan.world_size;
}

Plan plan_of(const SmallRun& run) {
  Plan plan = example_training_plan(example_of(run), must(read_model_file(fixture_folder(run.fixture))));
  add_surroundings(plan);
  return plan;
}

void on_ranks(int64_t size, const std::function<void(World&)>& body) {
  thread_ranks().run(size, [&](World& world) {
    at::set_num_threads(1);
    body(world);
  });
}

std::unique_ptr<TrainingRank> make_rank(World& world, const Plan& plan, uint64_t seed) {
  return must(TrainingRank::create(world, plan, {.max_gradient_norm = 0.5, .seed = seed}));
}

double take_step(TrainingRank& rank, const Plan& plan, int64_t step) {
  std::vector<RawInputs> samples;
  for (int64_t i = 0; i < plan.workload.global_batch_samples; ++i)
    samples.push_back(draw_example(rank.numbers(), rank.vocabulary(), static_cast<uint64_t>(1000 * step + i)));
  return rank.step(example_step_batch(rank, samples), num_example_targets(samples), kExampleRate).loss;
}

std::vector<std::pair<std::string, at::Tensor>> state_of(TrainingRank& rank) {
  std::vector<std::pair<std::string, at::Tensor>> state;
  rank.gather_values();
  for (const ParameterPtr& parameter : rank.parameters())
    state.emplace_back(parameter->name(), parameter->value.detach().clone());
  for (const StageOptimizer* optimizer : rank.optimizers()) {
    state.emplace_back("step", at::tensor(optimizer->step(), at::kLong));
    for (const OwnedPart& part : optimizer->owned_parts()) {
      state.emplace_back(part.parameter->name() + " master", part.state.master.clone());
      if (!part.state.moment1.defined()) continue;
      state.emplace_back(part.parameter->name() + " moment1", part.state.moment1.clone());
      state.emplace_back(part.parameter->name() + " moment2", part.state.moment2.clone());
    }
  }
  return state;
}

void expect_same(const std::vector<std::pair<std::string, at::Tensor>>& found,
                 const std::vector<std::pair<std::string, at::Tensor>>& expected) {
  ASSERT_EQ(found.size(), expected.size());
  for (size_t i = 0; i < found.size(); ++i) {
    const auto& [name, tensor] = found[i];
    ASSERT_EQ(name, expected[i].first);
    ASSERT_EQ(tensor.scalar_type(), expected[i].second.scalar_type()) << name;
    ASSERT_EQ(tensor.sizes(), expected[i].second.sizes()) << name;
    const at::Tensor a = tensor.contiguous(), b = expected[i].second.contiguous();
    EXPECT_TRUE(a.numel() == 0 || std::memcmp(a.data_ptr(), b.data_ptr(), a.nbytes()) == 0) << name;
  }
}

}  // namespace weft::training
