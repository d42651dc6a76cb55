#include "tests/training/small_run.h"

#include <algorithm>
#include <cstring>
#include <random>

#include <ATen/Parallel.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/tensor.h>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "tests/support/source_tree.h"
#include "weft/comm/run_ranks.h"
#include "weft/meaning/plan_schedule.h"
#include "weft/spec/model_reader.h"

namespace weft::training {
namespace {

/// A text with an image in every second sample, where the model sees.
RawInputs draw_sample(const ModelNumbers& numbers, int64_t vocabulary, uint64_t seed) {
  std::mt19937_64 random(seed);
  const MediaTokens& special = numbers.media.tokens;
  const std::vector<int64_t> reserved = {special.image,        special.video,      special.audio,
                                         special.vision_start, special.vision_end, special.audio_start,
                                         special.audio_end};
  std::vector<int64_t> ids;
  const auto add_text = [&](size_t count) {
    while (count > 0) {
      const auto id = static_cast<int64_t>(random() % static_cast<uint64_t>(vocabulary));
      if (std::find(reserved.begin(), reserved.end(), id) != reserved.end()) continue;
      ids.push_back(id);
      --count;
    }
  };
  RawInputs raw;
  add_text(3 + random() % 5);
  if (numbers.vision && seed % 2 == 0) {
    const int64_t merge = numbers.vision->merge_size;
    const Grid grid{1, merge * 2, merge};
    ids.push_back(special.vision_start);
    ids.insert(ids.end(), static_cast<size_t>(num_merged_tokens(grid, merge)), special.image);
    ids.push_back(special.vision_end);
    raw.image_grids.push_back(grid);
    raw.pixel_values = at::empty({num_patches(grid), numbers.vision->patch_elements()}, at::kDouble);
    std::normal_distribution<double> normal;
    for (int64_t e = 0; e < raw.pixel_values.numel(); ++e) raw.pixel_values.data_ptr<double>()[e] = normal(random);
    add_text(2);
  }
  raw.lengths = {std::ssize(ids)};
  std::vector<int64_t> targets(ids.size(), -100);
  for (size_t i = 0; i + 1 < ids.size(); ++i)
    if (ids[i + 1] != special.image) targets[i] = ids[i + 1];
  raw.input_ids = at::tensor(ids, at::kLong);
  raw.targets = at::tensor(targets, at::kLong);
  return raw;
}

template <typename T>
T must(Result<T> result) {
  WEFT_CHECK(result.ok(), "{}", result.error().message());
  return *std::move(result);
}

/// As even as it goes.
std::vector<std::vector<int64_t>> deal_layers(int64_t layers, int64_t pp, int64_t vpp) {
  std::vector<std::vector<int64_t>> dealt(static_cast<size_t>(pp), std::vector<int64_t>(static_cast<size_t>(vpp)));
  const int64_t stages = pp * vpp;
  for (int64_t stage = 0; stage < stages; ++stage) {
    dealt[static_cast<size_t>(stage % pp)][static_cast<size_t>(stage / pp)] =
        layers * (stage + 1) / stages - layers * stage / stages;
  }
  return dealt;
}

ModulePlan vision_beside(const SmallRun::Vision& vision, const Module& module, const SmallRun& run) {
  const bool is_disjoint = vision.pp > 0;
  ModulePlan settings{.kind = module.kind,
                      .placement = is_disjoint ? ModulePlacement::kDisjoint : ModulePlacement::kColocated,
                      .axis_order = default_axis_order(),
                      .tp = vision.tp,
                      .pp = is_disjoint ? vision.pp : 1,
                      .dp = vision.dp,
                      .layers = deal_layers(std::ssize(module.layers), is_disjoint ? vision.pp : 1, 1),
                      .zero = vision.zero,
                      .form = is_disjoint ? EncoderForm::kStream : EncoderForm::kBefore};
  const int64_t own = settings.tp * settings.pp * settings.dp;
  for (int64_t rank = run.world_size() - own; rank < run.world_size(); ++rank) settings.ranks.push_back(rank);
  return settings;
}

}  // namespace

std::string SmallRun::text() const {
  std::string name = fmt::format("{}_tp{}{}_pp{}x{}_dp{}_zero{}_{}_{}_{}", fixture, tp, sequence_parallel ? "sp" : "",
                                 pp, vpp, dp, zero, schedule, name_of(precision.compute), name_of(precision.master));
  if (cp > 1) name += fmt::format("_cp{}u{}", cp, cp_ulysses);
  if (ep > 1) name += fmt::format("_ep{}", ep);
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

Plan plan_of(const SmallRun& run) {
  const std::filesystem::path scenarios = source_tree() / "scenarios";
  Plan plan;
  plan.model = must(read_model_file(fixture_folder(run.fixture)));
  plan.cluster = must(read_cluster_file(scenarios / "clusters/local_cpu.yaml"));
  plan.workload = must(read_workload_file(scenarios / "workloads/text_4k.yaml"));
  plan.workload.frozen = run.frozen;
  plan.workload.global_batch_samples = run.microbatches * run.dp;
  plan.world_size = run.world_size();
  plan.cluster.nodes = 1;
  plan.cluster.devices_per_node = plan.world_size;
  plan.schedule = {.name = run.schedule, .mbs = 1, .microbatches = run.microbatches};
  plan.precision = run.precision;
  plan.buckets_mb = run.buckets_mb;
  for (const Module& module : plan.model.modules) {
    const bool is_llm = module.kind == ModuleKind::kLlm;
    if (!is_llm && run.vision) {
      plan.modules.push_back(vision_beside(*run.vision, module, run));
      continue;
    }
    ModulePlan settings{.kind = module.kind,
                        .placement = is_llm ? ModulePlacement::kBase : ModulePlacement::kInline,
                        .axis_order = default_axis_order(),
                        .tp = run.tp,
                        .cp = run.cp,
                        .cp_ulysses = run.cp_ulysses,
                        .ep = is_llm ? run.ep : 1,
                        .pp = run.pp,
                        .vpp = run.vpp,
                        .dp = run.dp,
                        .sequence_parallel = run.sequence_parallel,
                        .zero = run.zero};
    for (int64_t rank = 0; rank < run.tp * run.cp * run.pp * run.dp; ++rank) settings.ranks.push_back(rank);
    const auto count = static_cast<int64_t>(module.layers.size());
    settings.layers = deal_layers(is_llm ? count : 0, run.pp, run.vpp);
    if (!is_llm) settings.layers[0][0] = count;
    for (const auto& chunks : settings.layers) settings.recompute.emplace_back(chunks.size());
    plan.modules.push_back(std::move(settings));
  }
  return plan;
}

void on_ranks(int64_t size, const std::function<void(World&)>& body) {
  const auto error =
      run_ranks({.size = size, .comm = {.timeout = std::chrono::seconds(60), .is_checked = true}}, [&](World& world) {
        at::set_num_threads(1);
        body(world);
      });
  WEFT_CHECK(!error, "{}", error->message());
}

std::unique_ptr<TrainingRank> make_rank(World& world, const Plan& plan, uint64_t seed) {
  return must(TrainingRank::create(world, plan, {.max_gradient_norm = 0.5, .seed = seed}));
}

double take_step(TrainingRank& rank, const Plan& plan, int64_t step) {
  int64_t num_targets = 0;
  StepBatch batch{.assignment = assign_in_order(rank.batch_shape())};
  std::vector<Inputs> samples;
  for (int64_t i = 0; i < plan.schedule.microbatches * plan.llm().dp; ++i) {
    RawInputs sample = draw_sample(rank.numbers(), rank.vocabulary(), static_cast<uint64_t>(1000 * step + i));
    num_targets += sample.targets.ne(-100).sum().item<int64_t>();
    samples.push_back(must(prepare_inputs(rank.numbers(), rank.vocabulary(), std::move(sample))).to(rank.options()));
    batch.media.push_back({.image = samples.back().vision_places.size(0)});
  }
  // A microbatch is a sample, and a macro batch of an encoder, too.
  const auto share_of = [&](const BatchAssignment::Shares& shares, std::optional<int64_t> rank_of_module) {
    std::vector<Inputs> mine;
    if (!rank_of_module) return mine;
    for (const std::vector<int64_t>& indices : shares[static_cast<size_t>(*rank_of_module)])
      mine.push_back(indices.empty() ? Inputs() : samples[static_cast<size_t>(indices.front())]);
    return mine;
  };
  batch.microbatches = share_of(batch.assignment.llm, rank.data_parallel_rank(ModuleKind::kLlm));
  for (const auto& [kind, shares] : batch.assignment.encoders) {
    batch.encoders[kind] = share_of(shares, rank.data_parallel_rank(kind));
    for (Inputs& inputs : batch.microbatches) inputs.vision.reset();
  }
  return rank.step(batch, num_targets, 1e-2).loss;
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
