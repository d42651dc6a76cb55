#include <cmath>
#include <mutex>
#include <random>
#include <tuple>

#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/full.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "tests/support/source_tree.h"
#include "weft/base/document.h"
#include "weft/comm/run_ranks.h"
#include "weft/meaning/check.h"
#include "weft/meaning/plan_schedule.h"
#include "weft/models/initialize.h"
#include "weft/models/load_weights.h"
#include "weft/models/network.h"
#include "weft/optim/clip.h"
#include "weft/pipeline/plan_ranks.h"
#include "weft/pipeline/training_rank.h"
#include "weft/schedule/lowering.h"
#include "weft/schedule/step_end.h"
#include "weft/spec/model_reader.h"

namespace weft::training_suite_test {
namespace {

constexpr int64_t kSteps = 5;
constexpr double kLearningRate = 1e-2;
constexpr double kMaxNorm = 0.5;
constexpr uint64_t kSeed = 3;

Model model_of(const std::string& fixture) {
  auto model = read_model_file(source_tree() / "tests/parity/fixtures" / fixture);
  WEFT_CHECK(model.ok(), "{}", model.error().message());
  return *std::move(model);
}

/// Samples of random lengths, of which some have images.
RawInputs draw_sample(const ModelNumbers& numbers, int64_t vocabulary, uint64_t seed) {
  std::mt19937_64 random(seed);
  const auto below = [&](int64_t n) { return static_cast<int64_t>(random() % static_cast<uint64_t>(n)); };
  const MediaTokens& special = numbers.media.tokens;
  std::vector<int64_t> ids;
  const auto add_text = [&](int64_t count) {
    for (int64_t i = 0; i < count; ++i) {
      int64_t id = below(vocabulary);
      while (id == special.image || id == special.video || id == special.audio || id == special.vision_start ||
             id == special.vision_end || id == special.audio_start || id == special.audio_end)
        id = below(vocabulary);
      ids.push_back(id);
    }
  };
  RawInputs raw;
  add_text(1 + below(5));
  std::vector<at::Tensor> pixels;
  const int64_t images = numbers.vision ? below(3) : 0;
  for (int64_t i = 0; i < images; ++i) {
    const int64_t merge = numbers.vision->merge_size;
    const Grid grid{1, merge * (1 + below(3)), merge * (1 + below(3))};
    ids.push_back(special.vision_start);
    ids.insert(ids.end(), static_cast<size_t>(num_merged_tokens(grid, merge)), special.image);
    ids.push_back(special.vision_end);
    raw.image_grids.push_back(grid);
    at::Tensor rows = at::zeros({num_patches(grid), numbers.vision->patch_elements()}, at::kDouble);
    std::normal_distribution<double> normal;
    for (int64_t e = 0; e < rows.numel(); ++e) rows.data_ptr<double>()[e] = normal(random);
    pixels.push_back(rows);
    add_text(1 + below(3));
  }
  add_text(2 + below(6));
  if (!pixels.empty()) raw.pixel_values = at::cat(pixels);
  raw.lengths = {static_cast<int64_t>(ids.size())};
  std::vector<int64_t> targets(ids.size(), -100);
  for (size_t i = 0; i + 1 < ids.size(); ++i) {
    if (ids[i + 1] != special.image && below(5) > 0) targets[i] = ids[i + 1];
  }
  raw.input_ids = at::tensor(ids, at::kLong);
  raw.targets = at::tensor(targets, at::kLong);
  return raw;
}

RawInputs packed(const std::vector<RawInputs>& samples) {
  RawInputs all;
  std::vector<at::Tensor> ids, targets, pixels;
  for (const RawInputs& sample : samples) {
    ids.push_back(sample.input_ids);
    targets.push_back(sample.targets);
    if (sample.pixel_values.defined()) pixels.push_back(sample.pixel_values);
    all.lengths.insert(all.lengths.end(), sample.lengths.begin(), sample.lengths.end());
    all.image_grids.insert(all.image_grids.end(), sample.image_grids.begin(), sample.image_grids.end());
  }
  all.input_ids = at::cat(ids);
  all.targets = at::cat(targets);
  if (!pixels.empty()) all.pixel_values = at::cat(pixels);
  return all;
}

Inputs prepared(const ModelNumbers& numbers, int64_t vocabulary, const std::vector<RawInputs>& samples) {
  auto inputs = prepare_inputs(numbers, vocabulary, packed(samples));
  WEFT_CHECK(inputs.ok(), "{}", inputs.error().message());
  return inputs->to(at::TensorOptions().dtype(at::kDouble));
}

/// The samples of a step's batch: the same whatever the plan.
std::vector<RawInputs> batch_of(const ModelNumbers& numbers, int64_t vocabulary, int64_t step, int64_t size) {
  std::vector<RawInputs> samples;
  for (int64_t i = 0; i < size; ++i) {
    samples.push_back(draw_sample(numbers, vocabulary, static_cast<uint64_t>(1000 * step + i)));
  }
  return samples;
}

int64_t num_targets(const std::vector<RawInputs>& samples) {
  int64_t count = 0;
  for (const RawInputs& sample : samples) count += sample.targets.ne(-100).sum().item<int64_t>();
  return count;
}

struct Outcome {
  std::vector<double> losses;
  std::vector<double> norms;
  std::map<std::string, at::Tensor> weights;
};

/// One rank, one batch at a time, with AdamW written out.
Outcome train_on_one_rank(const Model& model, int64_t batch, const std::vector<ModuleKind>& frozen) {
  at::set_num_threads(1);  // threads would spin longer than they compute
  WholeParameters maker(at::TensorOptions().dtype(at::kDouble));
  const Network network = *Network::create(model, maker);
  initialize_weights(maker.all(), kSeed);
  for (const ParameterPtr& parameter : maker.all()) {
    const bool is_vision = parameter->name().starts_with("visual.");
    const bool is_audio = parameter->name().starts_with("audio_tower.");
    const ModuleKind kind = is_vision ? ModuleKind::kVision : is_audio ? ModuleKind::kAudio : ModuleKind::kLlm;
    if (std::find(frozen.begin(), frozen.end(), kind) != frozen.end()) parameter->value.set_requires_grad(false);
  }
  const AdamWSettings settings;
  std::map<Parameter*, std::pair<at::Tensor, at::Tensor>> moments;
  Outcome outcome;
  for (int64_t step = 1; step <= kSteps; ++step) {
    const int64_t vocabulary = network.decoder().vocabulary();
    const std::vector<RawInputs> samples = batch_of(network.numbers(), vocabulary, step, batch);
    const at::Tensor loss = network.loss_sum(prepared(network.numbers(), vocabulary, samples), {}) /
                            static_cast<double>(num_targets(samples));
    if (loss.requires_grad()) loss.backward();  // else everything that is trained has no data in this batch
    outcome.losses.push_back(loss.item<double>());
    const at::NoGradGuard no_graph;
    double squares = 0;
    for (const ParameterPtr& p : maker.all()) {
      if (p->gradient.defined()) squares += p->gradient.square().sum().item<double>();
    }
    outcome.norms.push_back(std::sqrt(squares));
    const double scale = std::min(1.0, kMaxNorm / (std::sqrt(squares) + 1e-6));
    for (const ParameterPtr& p : maker.all()) {
      if (!p->is_trainable()) continue;
      auto& [first, second] = moments[p.get()];
      if (!first.defined()) {
        first = at::zeros_like(p->value);
        second = at::zeros_like(p->value);
      }
      const at::Tensor gradient = p->gradient.defined() ? p->gradient * scale : at::zeros_like(p->value);
      at::Tensor value = p->value.detach();
      if (value.dim() >= 2) value.mul_(1 - kLearningRate * settings.weight_decay);
      first.mul_(settings.beta1).add_(gradient, 1 - settings.beta1);
      second.mul_(settings.beta2).addcmul_(gradient, gradient, 1 - settings.beta2);
      const double c1 = 1 - std::pow(settings.beta1, static_cast<double>(step));
      const double c2 = 1 - std::pow(settings.beta2, static_cast<double>(step));
      value.sub_(first / c1 / ((second / c2).sqrt() + settings.epsilon) * kLearningRate);
      p->gradient.reset();
    }
  }
  const NamedWeights weights(maker.all());
  for (const std::string& name : weights.names()) outcome.weights[name] = weights.value(name);
  return outcome;
}

struct Shape {
  std::string fixture = "llama_tied";
  int64_t tp = 1, pp = 1, vpp = 1, dp = 1, ep = 1;
  bool sequence_parallel = false;
  int64_t zero = 0;
  std::string schedule = "1f1b";
  int64_t mbs = 1;
  int64_t microbatches = 2;
  std::vector<std::vector<int64_t>> layers;          ///< of the llm
  std::vector<std::vector<int64_t>> encoder_layers;  ///< of an inline vision encoder
  int64_t recomputed = 0;
  double buckets_mb = 64;
  std::vector<ModuleKind> frozen;

  int64_t batch() const { return mbs * microbatches * dp; }
  std::string text() const {
    std::string name = fmt::format("{}_tp{}{}_pp{}x{}_dp{}_zero{}_{}_mbs{}x{}", fixture, tp,
                                   sequence_parallel ? "sp" : "", pp, vpp, dp, zero, schedule, mbs, microbatches);
    if (ep > 1) name += fmt::format("_ep{}", ep);
    if (recomputed > 0) name += "_recomputed";
    for (const ModuleKind kind : frozen) name += fmt::format("_frozen_{}", name_of(kind));
    if (!encoder_layers.empty()) {
      name += "_vision";
      for (const auto& rank : encoder_layers) name += fmt::format("_{}", fmt::join(rank, "."));
    }
    std::replace_if(
        name.begin(), name.end(), [](char c) { return !std::isalnum(static_cast<unsigned char>(c)); }, '_');
    return name;
  }
};

void PrintTo(const Shape& shape, std::ostream* out) {
  *out << shape.text();
}

/// As even as it goes where the shape does not say.
std::vector<std::vector<int64_t>> deal_layers(int64_t layers, int64_t pp, int64_t vpp) {
  std::vector<std::vector<int64_t>> dealt(static_cast<size_t>(pp), std::vector<int64_t>(static_cast<size_t>(vpp)));
  for (int64_t stage = 0; stage < pp * vpp; ++stage) {
    const int64_t begin = layers * stage / (pp * vpp);
    const int64_t end = layers * (stage + 1) / (pp * vpp);
    dealt[static_cast<size_t>(stage % pp)][static_cast<size_t>(stage / pp)] = end - begin;
  }
  return dealt;
}

Plan plan_of(const Shape& shape, const Model& model) {
  Plan plan;
  plan.model = model;
  plan.workload.frozen = shape.frozen;
  plan.workload.global_batch_samples = shape.batch();
  plan.world_size = shape.tp * shape.pp * shape.dp;
  plan.cluster.nodes = 1;
  plan.cluster.devices_per_node = plan.world_size;
  plan.schedule = {.name = shape.schedule, .mbs = shape.mbs, .microbatches = shape.microbatches};
  plan.precision = {.compute = Precision::kFp64, .master = Precision::kFp64, .reduce = Precision::kFp64};
  plan.buckets_mb = shape.buckets_mb;
  for (const Module& module : model.modules) {
    const bool is_llm = module.kind == ModuleKind::kLlm;
    ModulePlan settings{.kind = module.kind,
                        .placement = is_llm ? ModulePlacement::kBase : ModulePlacement::kInline,
                        .axis_order = default_axis_order(),
                        .tp = shape.tp,
                        .ep = is_llm ? shape.ep : 1,
                        .pp = shape.pp,
                        .vpp = is_llm ? shape.vpp : 1,
                        .dp = shape.dp,
                        .sequence_parallel = shape.sequence_parallel,
                        .zero = shape.zero};
    for (int64_t rank = 0; rank < plan.world_size; ++rank) settings.ranks.push_back(rank);
    const auto count = static_cast<int64_t>(module.layers.size());
    settings.layers = is_llm ? shape.layers : shape.encoder_layers;
    if (settings.layers.empty()) {
      settings.layers = deal_layers(count, shape.pp, shape.vpp);
      if (!is_llm) {
        for (auto& chunks : settings.layers) std::fill(chunks.begin(), chunks.end(), 0);
        settings.layers[0][0] = count;
      }
    }
    for (const auto& chunks : settings.layers) {
      settings.recompute.emplace_back();
      for (const int64_t layers : chunks)
        settings.recompute.back().push_back(RecomputeCounts{.full = std::min(layers, shape.recomputed)});
    }
    plan.modules.push_back(std::move(settings));
  }
  return plan;
}

/// What all ranks of this process know; nothing where there are not as many ranks as the plan needs.
std::optional<Outcome> train(const Shape& shape, const Model& model) {
  const Plan plan = plan_of(shape, model);
  Outcome outcome;
  std::mutex guard;
  const PlanRanks ranks = plan_ranks();
  const bool has_run = ranks.run(plan.world_size, [&](World& world) {
    at::set_num_threads(1);
    auto made = TrainingRank::create(world, plan, {.max_gradient_norm = kMaxNorm, .seed = kSeed});
    WEFT_CHECK(made.ok(), "{}", made.error().message());
    TrainingRank& rank = **made;
    const Schedule lowered = *lower_schedule(with_step_end(*schedule_of(plan)));
    for (int64_t step = 1; step <= kSteps; ++step) {
      const std::vector<RawInputs> samples = batch_of(rank.numbers(), rank.vocabulary(), step, shape.batch());
      std::vector<Inputs> microbatches;
      for (int64_t m = 0; m < shape.microbatches; ++m) {
        const int64_t first = (m * shape.dp + rank.data_parallel_rank()) * shape.mbs;
        microbatches.push_back(prepared(rank.numbers(), rank.vocabulary(),
                                        {samples.begin() + first, samples.begin() + first + shape.mbs}));
      }
      const StepReport report = rank.step(microbatches, num_targets(samples), kLearningRate);
      const std::lock_guard lock(guard);
      if (world.rank() == 0 || ranks.are_processes) {
        outcome.losses.push_back(report.loss);
        outcome.norms.push_back(report.gradient_norm);
      }
      std::vector<Action> done;
      for (const TimelineEvent& event : report.events) done.push_back(event.action);
      const auto row = static_cast<size_t>(world.rank() / (shape.tp * shape.dp));
      EXPECT_EQ(done, lowered.rows[row]);
    }
    rank.gather_values();
    const NamedWeights held(rank.parameters());
    const std::lock_guard lock(guard);
    for (const ParameterPtr& parameter : rank.parameters()) {
      int64_t begin = 0;
      for (const WeightPiece& piece : parameter->spec.pieces) {
        const at::Tensor elements = parameter->value.detach().reshape({-1}).narrow(0, begin, piece.num_elements());
        begin += piece.num_elements();
        if (piece.name.empty()) continue;
        at::Tensor& whole = outcome.weights[piece.name];
        if (!whole.defined()) whole = at::full(piece.shape, std::nan(""), at::kDouble);
        at::Tensor part = held_part(piece, whole);
        // Copies of a part must be equal to the last digit.
        const at::Tensor found = elements.view(part.sizes());
        if (part.numel() > 0 && !part.flatten()[0].isnan().item<bool>()) {
          EXPECT_LE((part - found).abs().max().item<double>(), 1e-12) << piece.name;
        }
        part.copy_(found);
      }
    }
  });
  return has_run ? std::optional(outcome) : std::nullopt;
}

/// Of one rank, computed once for all shapes with the same samples and weights.
const Outcome& expected_outcome(const Model& model, const Shape& shape) {
  static std::map<std::tuple<std::string, int64_t, std::vector<ModuleKind>>, Outcome> known;
  const auto key = std::tuple(shape.fixture, shape.batch(), shape.frozen);
  const auto found = known.find(key);
  if (found != known.end()) return found->second;
  return known.emplace(key, train_on_one_rank(model, shape.batch(), shape.frozen)).first->second;
}

class Training : public testing::TestWithParam<Shape> {};

TEST_P(Training, EqualsOneRank) {
  const Shape shape = GetParam();
  const Model model = model_of(shape.fixture);
  const std::optional<Outcome> outcome = train(shape, model);
  if (!outcome) GTEST_SKIP() << "on another number of processes";
  const Outcome& found = *outcome;
  const Outcome& expected = expected_outcome(model, shape);
  ASSERT_EQ(found.losses.size(), expected.losses.size());
  for (size_t step = 0; step < expected.losses.size(); ++step) {
    EXPECT_NEAR(found.losses[step], expected.losses[step], 1e-9 * std::abs(expected.losses[step])) << "step " << step;
    EXPECT_NEAR(found.norms[step], expected.norms[step], 1e-9 * expected.norms[step]) << "step " << step;
  }
  const bool has_all = !plan_ranks().are_processes;
  if (has_all) {
    ASSERT_EQ(found.weights.size(), expected.weights.size());
  }
  for (const auto& [name, weight] : found.weights) {
    const at::Tensor& value = expected.weights.at(name);
    const double scale = value.abs().max().item<double>();
    // What is not this process's is not a number.
    const at::Tensor difference = has_all ? weight - value : (weight - value).nan_to_num(0);
    EXPECT_LE(difference.abs().max().item<double>(), 1e-9 * scale) << name;
    EXPECT_FALSE(weight.isnan().all().item<bool>()) << name;
  }
}

std::vector<Shape> shapes() {
  std::vector<Shape> all;
  all.push_back({});
  // One dimension at a time.
  all.push_back({.dp = 2});
  all.push_back({.dp = 3, .mbs = 2, .microbatches = 1});
  all.push_back({.fixture = "qwen2_tied", .tp = 2});
  all.push_back({.fixture = "qwen2_tied", .tp = 2, .sequence_parallel = true});
  all.push_back({.fixture = "qwen3", .tp = 2, .sequence_parallel = true});
  all.push_back({.fixture = "llama_bias", .tp = 2});
  all.push_back({.fixture = "llama_bias", .tp = 2, .sequence_parallel = true});
  all.push_back({.pp = 2, .microbatches = 3});
  all.push_back({.fixture = "llama_scaled", .pp = 2, .schedule = "gpipe", .microbatches = 3});
  all.push_back({.fixture = "llama_scaled", .pp = 2, .schedule = "zb_h1", .microbatches = 4});
  all.push_back({.fixture = "llama_scaled", .pp = 2, .vpp = 2, .schedule = "interleaved_1f1b", .microbatches = 4});
  all.push_back({.fixture = "qwen2_tied", .pp = 2, .vpp = 2, .schedule = "zb_v", .microbatches = 4});
  for (const int64_t zero : {1, 2, 3}) {
    all.push_back({.dp = 2, .zero = zero, .buckets_mb = 0.01});
    all.push_back({.fixture = "qwen3", .tp = 2, .dp = 2, .sequence_parallel = true, .zero = zero});
    all.push_back({.fixture = "qwen2_tied", .tp = 2, .pp = 2, .dp = 2, .zero = zero, .microbatches = 3});
  }
  all.push_back({.fixture = "llama_scaled", .pp = 2, .recomputed = 1});
  all.push_back({.fixture = "llama_scaled", .pp = 2, .schedule = "zb_h1", .microbatches = 4, .recomputed = 2});
  // Products.
  all.push_back({.fixture = "qwen2_tied", .tp = 2, .pp = 2, .dp = 2, .sequence_parallel = true});
  all.push_back({.fixture = "qwen2_tied",
                 .tp = 2,
                 .pp = 2,
                 .vpp = 2,
                 .dp = 2,
                 .schedule = "interleaved_1f1b",
                 .microbatches = 4});
  // Encoders inside the pipeline, split over stages or not, trained or frozen.
  all.push_back({.fixture = "qwen2_vl_tied", .dp = 2, .mbs = 2});
  all.push_back({.fixture = "qwen2_vl_tied", .pp = 2, .microbatches = 4});
  all.push_back({.fixture = "qwen2_vl_untied", .tp = 2, .pp = 2, .sequence_parallel = true, .microbatches = 3});
  all.push_back({.fixture = "qwen2_vl_untied", .pp = 2, .microbatches = 3, .frozen = {ModuleKind::kVision}});
  all.push_back({.fixture = "qwen2_vl_untied", .pp = 2, .microbatches = 3, .frozen = {ModuleKind::kLlm}});
  all.push_back({.fixture = "qwen2_5_vl", .pp = 2, .dp = 2, .zero = 2, .microbatches = 3});
  all.push_back({.fixture = "qwen2_vl_tied", .pp = 2, .microbatches = 3, .frozen = {ModuleKind::kLlm}});
  all.push_back({.fixture = "qwen2_vl_tied", .tp = 2, .dp = 2, .sequence_parallel = true, .zero = 3});
  // Copied keys, uneven cuts, weights that are gathered for forward and backward apart.
  all.push_back({.fixture = "qwen2_tied", .tp = 3, .pp = 2, .sequence_parallel = true});
  all.push_back({.fixture = "llama_scaled",
                 .pp = 2,
                 .dp = 2,
                 .zero = 3,
                 .schedule = "zb_h1",
                 .microbatches = 4,
                 .recomputed = 1});
  // Blocks that are gathered and scattered one by one, with images on one data-parallel rank and not on the other, and
  // copies of the embedding on two ranks or on one.
  all.push_back({.fixture = "qwen2_vl_tied", .pp = 2, .dp = 2, .zero = 3, .microbatches = 3});
  all.push_back({.fixture = "qwen2_vl_untied", .dp = 2, .zero = 2, .microbatches = 3, .buckets_mb = 0.01});
  all.push_back({.fixture = "qwen2_5_vl", .dp = 2, .zero = 3, .microbatches = 3, .recomputed = 1});
  all.push_back({.fixture = "qwen2_vl_tied", .dp = 2, .zero = 3, .microbatches = 3, .frozen = {ModuleKind::kLlm}});
  all.push_back({.fixture = "qwen2_vl_tied", .dp = 2, .zero = 3, .microbatches = 3, .frozen = {ModuleKind::kVision}});
  for (const int64_t zero : {0, 1, 2, 3}) {
    all.push_back({.fixture = "qwen2_tied",
                   .pp = 2,
                   .vpp = 2,
                   .dp = 2,
                   .zero = zero,
                   .schedule = "zb_v",
                   .microbatches = 4,
                   .buckets_mb = 0.01});
  }
  // A mixture of experts, without cutting it.
  all.push_back({.fixture = "qwen3_moe_mixed", .pp = 2, .dp = 2, .zero = 1});
  // And shared out.
  all.push_back({.fixture = "qwen3_moe_norm", .dp = 2, .ep = 2});
  all.push_back({.fixture = "qwen3_moe_norm", .dp = 2, .ep = 2, .zero = 3});
  all.push_back({.fixture = "qwen3_moe_norm", .pp = 2, .dp = 4, .ep = 2, .zero = 3});
  return all;
}

/// Eight equal layers, with an embedding and a head that are smaller.
Model eight_layers() {
  const Document document{.source = "test", .root = Json::parse(R"({"model_type": "llama", "hidden_size": 32,
    "intermediate_size": 64, "num_hidden_layers": 8, "num_attention_heads": 2, "vocab_size": 64,
    "tie_word_embeddings": false, "max_position_embeddings": 128})")};
  auto model = read_model(document, "eight layers");
  WEFT_CHECK(model.ok(), "{}", model.error().message());
  return *std::move(model);
}

/// The most that rank 0's only stage held in a step, and elements of a layer and of the whole.
struct Held {
  HeldElements peak;
  int64_t layer = 0;
  int64_t all = 0;
};

Held most_held(const Shape& shape) {
  const Model model = eight_layers();
  const Plan plan = plan_of(shape, model);
  Held held;
  const auto error = run_ranks({.size = plan.world_size}, [&](World& world) {
    auto made = TrainingRank::create(world, plan, {.seed = kSeed});
    TrainingRank& rank = **made;
    const std::vector<RawInputs> samples = batch_of(rank.numbers(), rank.vocabulary(), 1, 1);
    const Inputs inputs = prepared(rank.numbers(), rank.vocabulary(), samples);
    // In the second step values and gradients come from an update, not from the start.
    for (int64_t step = 0; step < 2; ++step) {
      rank.step(std::vector<Inputs>(static_cast<size_t>(shape.microbatches), inputs), 10, kLearningRate);
    }
    if (world.rank() != 0) return;
    held.peak = rank.peak_elements().front();
    for (const ParameterPtr& parameter : rank.parameters()) {
      held.all += parameter->value.numel();
      if (parameter->name().find(".layers.3.") != std::string::npos) held.layer += parameter->value.numel();
    }
  });
  EXPECT_FALSE(error);
  return held;
}

TEST(TrainingRank, Zero3HoldsTwoBlocksOfValues) {
  for (const std::string schedule : {"1f1b", "zb_h1"}) {
    for (const int64_t recomputed : {0, 8}) {
      const Held held = most_held({.dp = 2, .zero = 3, .schedule = schedule, .recomputed = recomputed});
      const int64_t owned = held.all / 2;
      EXPECT_GT(held.peak.values, owned + held.layer);
      EXPECT_LE(held.peak.values, owned + 2 * held.layer + held.all / 20) << "of " << held.all;  // with padding
    }
  }
}

TEST(TrainingRank, Zero2HoldsABucketOrTwoOfWholeGradients) {
  for (const int64_t zero : {2, 3}) {
    for (const std::string schedule : {"1f1b", "zb_h1"}) {
      const Held whole = most_held({.dp = 2, .zero = 0, .schedule = schedule});
      // Buckets of about a layer: one is filled, as much and half of it again on its way, and half of that back.
      const double bucket_mb = static_cast<double>(whole.layer) * 8 * 1.05 / 1e6;
      const Held held = most_held({.dp = 2, .zero = zero, .schedule = schedule, .buckets_mb = bucket_mb});
      EXPECT_GE(whole.peak.gradients, whole.all);
      EXPECT_LE(held.peak.gradients, held.all / 2 + 13 * held.layer / 4 + held.all / 20) << "of " << held.all;
    }
  }
}

TEST(TrainingRank, AGradientThatIsNotFiniteLeavesTheWeights) {
  const Model model = model_of("llama_tied");
  const Plan plan = plan_of({.dp = 2}, model);
  const auto error = run_ranks({.size = 2}, [&](World& world) {
    const auto made = TrainingRank::create(world, plan, {.seed = kSeed});
    TrainingRank& rank = **made;
    const std::vector<RawInputs> samples = batch_of(rank.numbers(), rank.vocabulary(), 1, 2);
    const Inputs inputs = prepared(rank.numbers(), rank.vocabulary(), samples);
    const at::NoGradGuard no_graph;
    const at::Tensor weight = rank.parameters().front()->value.detach();
    if (world.rank() == 1) weight.view({-1})[0] = std::nan("");
    const at::Tensor before = weight.clone();
    const StepReport report = [&] {
      const at::AutoGradMode with_graph(true);
      return rank.step({inputs, inputs}, 10, kLearningRate);
    }();
    EXPECT_FALSE(report.is_updated);
    EXPECT_TRUE(weight.equal(before) || world.rank() == 1);
  });
  EXPECT_FALSE(error);
}

TEST(TrainingRank, WhatIsNotRunYetIsNamed) {
  const Model model = model_of("qwen2_vl_tied");
  const auto refusal = [&](const std::function<void(Plan&)>& change) {
    Plan plan = plan_of({.pp = 2}, model);
    change(plan);
    std::string message;
    std::mutex guard;
    const auto error = run_ranks({.size = 2}, [&](World& world) {
      const auto made = TrainingRank::create(world, plan, {});
      const std::lock_guard lock(guard);
      message = made.ok() ? "" : made.error().message();
    });
    EXPECT_FALSE(error);
    return message;
  };
  EXPECT_EQ(refusal([](Plan&) {}), "");
  EXPECT_NE(refusal([](Plan& plan) { plan.precision.compute = Precision::kFp16; }).find("precision.compute"),
            std::string::npos);
  EXPECT_NE(refusal([](Plan& plan) { plan.offload.optimizer = 1; }).find("offload"), std::string::npos);
}

INSTANTIATE_TEST_SUITE_P(Plans, Training, testing::ValuesIn(shapes()),
                         [](const auto& named) { return named.param.text(); });

}  // namespace
}  // namespace weft::training_suite_test
