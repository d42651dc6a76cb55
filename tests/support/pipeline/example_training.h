#pragma once

#include <array>
#include <cctype>
#include <cmath>
#include <map>
#include <mutex>
#include <random>
#include <regex>
#include <set>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "tests/support/pipeline/plan_ranks.h"
#include "tests/support/source_tree.h"
#include "weft/families/media/audio_index.h"
#include "weft/meaning/balance.h"
#include "weft/meaning/plan_schedule.h"
#include "weft/meaning/put_rows.h"
#include "weft/models/initialize.h"
#include "weft/models/load_weights.h"
#include "weft/models/network.h"
#include "weft/pipeline/training_rank.h"
#include "weft/program/dropping_ops.h"
#include "weft/program/name_weights.h"
#include "weft/schedule/generators.h"
#include "weft/spec/model_reader.h"

// What tests of training share: tiny models, batches that do not depend on the plan, a plan that trains them, and one
// rank that does the same by hand.
namespace weft {

/// An encoder beside the pipeline.
struct EncoderExample {
  ModulePlacement placement = ModulePlacement::kColocated;
  int64_t tp = 1, cp = 1, pp = 1, dp = 1;
  int64_t ulysses = 1;  ///< of cp
  int64_t mbs_scale = 1, mbs_parts = 1;
  EncoderForm form = EncoderForm::kBefore;
  int64_t live = 0;
  int64_t zero = 0;
  bool sequence_parallel = false;
  bool recompute_from_inputs = false;
  std::vector<int64_t> rows = {};                 ///< with kPartial: the llm's pipeline ranks that it is on
  std::vector<std::vector<int64_t>> layers = {};  ///< as even as it goes
};

struct TrainingExample {
  std::string fixture = "llama_tied";
  std::string sizes = "{}";  ///< JSON that goes over the fixture's configuration
  std::string sizes_name;    ///< what names say instead of the sizes
  int64_t tp = 1, cp = 1, pp = 1, vpp = 1, dp = 1, ep = 1;
  int64_t ulysses = 1;          ///< of cp
  int64_t encoder_ulysses = 1;  ///< of encoders' cp
  bool sequence_parallel = false;
  bool experts_over_tp = false;
  std::optional<bool> encoder_sequence_parallel;  ///< the llm's
  int64_t zero = 0;
  double buckets_mb = 64;
  std::string schedule = "1f1b";
  bool is_explicit = false;       ///< the schedule's rows are given instead of its name
  std::vector<std::string> rows;  ///< given instead of a schedule
  int64_t mbs = 1;
  int64_t microbatches = 2;
  std::vector<std::vector<int64_t>> layers;  ///< of the llm; as even as it goes
  std::vector<std::vector<int64_t>> vision_layers;
  std::vector<std::vector<int64_t>> audio_layers;
  RecomputeCounts recompute;  ///< of every chunk, as far as it has blocks
  std::vector<ModuleKind> frozen;
  std::vector<TrainRule> trainable;
  std::map<ModuleKind, EncoderExample> beside;  ///< encoders that are not in the pipeline
  std::set<int64_t> bare_samples;               ///< of every batch: they have no media
  int64_t bare_step = 0;                        ///< whose samples have none
  bool has_videos = false;
  bool overlaps = true;
  Balance balance = Balance::kNone;
  int64_t num_idle_ranks = 0;
  PrecisionPlan precision = {.compute = Precision::kFp64, .master = Precision::kFp64, .reduce = Precision::kFp64};
  double balance_coefficient = 0;
  bool crowds_experts = false;     ///< every row chooses the last experts, and no row the others
  bool has_masked_sample = false;  ///< the first sample of every batch has no target
  bool has_short_sample = false;   ///< the last sample of every batch has one token
  int64_t stretch = 1;             ///< times as much text, and media with longer sides
  int64_t steps = 3;
  /// AdamW's: gradients that are smaller are not blown up, and neither is what they are rounded by.
  double epsilon = AdamWSettings().epsilon;

  int64_t batch() const { return mbs * microbatches * dp; }
  bool divides_encoder_rows() const { return encoder_sequence_parallel.value_or(sequence_parallel); }
  std::string name() const {
    std::string text =
        fmt::format("{}_tp{}{}{}_pp{}x{}_dp{}_zero{}_{}_mbs{}x{}", fixture, tp, sequence_parallel ? "sp" : "",
                    divides_encoder_rows() ? "e" : "", pp, vpp, dp, zero, schedule, mbs, microbatches);
    const Json changes = Json::parse(sizes);
    if (!sizes_name.empty()) {
      text += "_" + sizes_name;
    } else {
      for (const auto& [key, value] : changes.items()) text += fmt::format("_{}{}", key, value.dump());
    }
    if (recompute.full > 0) text += fmt::format("_full{}", recompute.full);
    if (recompute.selective > 0) text += fmt::format("_selective{}", recompute.selective);
    for (const ModuleKind kind : frozen) text += fmt::format("_frozen_{}", name_of(kind));
    for (const auto& rank : vision_layers) text += fmt::format("_v{}", fmt::join(rank, "."));
    for (const auto& rank : audio_layers) text += fmt::format("_a{}", fmt::join(rank, "."));
    for (const TrainRule& rule : trainable) text += fmt::format("_{}{}", rule.train ? "train" : "freeze", rule.weights);
    if (is_explicit) text += "_explicit";
    if (!rows.empty()) text += fmt::format("_rows{}", rows.size());
    if (cp > 1) text += fmt::format("_cp{}u{}e{}", cp, ulysses, encoder_ulysses);
    if (ep > 1) text += fmt::format("_ep{}{}", ep, experts_over_tp ? "tp" : "");
    if (buckets_mb < 1) text += "_small_buckets";
    if (balance_coefficient > 0) text += "_balanced";
    if (crowds_experts) text += "_crowded";
    if (has_masked_sample) text += "_masked";
    if (has_short_sample) text += "_short";
    for (const auto& [kind, e] : beside) {
      constexpr std::array kPlacements = {"base", "inline", "colocated", "disjoint", "partial"};
      text += fmt::format("_{}_{}_tp{}{}_pp{}_dp{}_scale{}_{}{}_zero{}{}", name_of(kind),
                          kPlacements[static_cast<size_t>(e.placement)], e.tp, e.sequence_parallel ? "sp" : "", e.pp,
                          e.dp, e.mbs_scale, name_of(e.form), e.live, e.zero, e.recompute_from_inputs ? "_again" : "");
      if (e.mbs_parts > 1) text += fmt::format("_parts{}", e.mbs_parts);
      if (e.cp > 1) text += fmt::format("_cp{}u{}", e.cp, e.ulysses);
      for (const int64_t row : e.rows) text += fmt::format("_row{}", row);
    }
    if (!bare_samples.empty()) text += fmt::format("_bare{}", fmt::join(bare_samples, "."));
    if (bare_step > 0) text += fmt::format("_barestep{}", bare_step);
    if (has_videos) text += "_videos";
    if (!overlaps) text += "_nooverlap";
    if (balance != Balance::kNone) text += fmt::format("_reassigned{}", static_cast<int>(balance));
    if (num_idle_ranks > 0) text += fmt::format("_idle{}", num_idle_ranks);
    std::replace_if(
        text.begin(), text.end(), [](char c) { return !std::isalnum(static_cast<unsigned char>(c)); }, '_');
    return text;
  }
};

inline void PrintTo(const TrainingExample& example, std::ostream* out) {
  *out << example.name();
}

inline constexpr double kExampleRate = 1e-2;
inline constexpr double kExampleMaxNorm = 0.5;
inline constexpr uint64_t kExampleSeed = 3;

inline Model example_model(const TrainingExample& example) {
  const auto folder = source_tree() / "tests/parity/fixtures" / example.fixture;
  auto model = read_model_file(folder);
  WEFT_CHECK(model.ok(), "{}", model.error().message());
  Json config = model->config;
  config.merge_patch(Json::parse(example.sizes));
  if (model->family == "qwen3_moe") config["router_aux_loss_coef"] = example.balance_coefficient;
  if (model->family == "qwen3_vl_moe") config["text_config"]["router_aux_loss_coef"] = example.balance_coefficient;
  if (model->family == "qwen2_5_omni_thinker") {
    // As many heads as two ranks need.
    config["vision_config"]["num_heads"] = 2;
    config["vision_config"]["hidden_size"] = 16;
  }
  model = read_model({.source = example.fixture, .root = std::move(config)}, example.fixture);
  WEFT_CHECK(model.ok(), "{}", model.error().message());
  return *std::move(model);
}

/// A sample of random length, with images and clips where the model takes them and chance will.
inline RawInputs draw_example(const ModelNumbers& numbers, int64_t vocabulary, uint64_t seed, bool has_media = true,
                              bool has_videos = false, int64_t stretch = 1) {
  std::mt19937_64 random(seed);
  std::normal_distribution<double> normal;
  const auto below = [&](int64_t n) { return static_cast<int64_t>(random() % static_cast<uint64_t>(n)); };
  const auto draw = [&](int64_t rows, int64_t columns) {
    const at::Tensor values = at::zeros({rows, columns}, at::kDouble);
    for (int64_t i = 0; i < values.numel(); ++i) values.data_ptr<double>()[i] = normal(random);
    return values;
  };
  const MediaTokens& special = numbers.media.tokens;
  std::vector<int64_t> ids;
  const auto add_text = [&](int64_t count) {
    while (count > 0) {
      const int64_t id = below(vocabulary);
      if (id == special.image || id == special.video || id == special.audio || id == special.vision_start ||
          id == special.vision_end || id == special.audio_start || id == special.audio_end)
        continue;
      ids.push_back(id);
      --count;
    }
  };
  const auto add_media = [&](int64_t start, int64_t token, int64_t count, int64_t end) {
    if (start >= 0) ids.push_back(start);
    ids.insert(ids.end(), static_cast<size_t>(count), token);
    if (end >= 0) ids.push_back(end);
    add_text(1 + below(3));
  };
  RawInputs raw;
  const auto side = static_cast<int64_t>(std::sqrt(static_cast<double>(stretch)));
  add_text(stretch * (1 + below(5)));
  std::vector<at::Tensor> pixels, frames;
  if (has_media && has_videos && special.video >= 0) {
    const int64_t merge = numbers.vision->merge_size;
    const Grid grid{2, merge * (1 + below(2)), merge};
    const int64_t runs = numbers.media.time == TimeRule::kApart ? grid.t : 1;
    for (int64_t run = 0; run < runs; ++run)
      add_media(special.vision_start, special.video, num_merged_tokens(grid, merge) / runs, special.vision_end);
    raw.video_grids.push_back(grid);
    raw.pixel_values_videos = draw(num_patches(grid), numbers.vision->patch_elements());
  }
  for (int64_t left = numbers.vision && has_media ? below(3) : 0; left > 0; --left) {
    const int64_t merge = numbers.vision->merge_size;
    Grid grid{1, side * merge * (1 + below(4)), side * merge * (1 + below(4))};
    if (const int64_t tile = numbers.vision->tile_side; tile > 0) grid = {1, tile, tile};
    add_media(special.vision_start, special.image, num_merged_tokens(grid, merge), special.vision_end);
    raw.image_grids.push_back(grid);
    pixels.push_back(draw(num_patches(grid), numbers.vision->patch_elements()));
  }
  for (int64_t left = numbers.audio && has_media ? below(3) : 0; left > 0; --left) {
    const int64_t length = stretch * (3 + below(22));
    add_media(special.audio_start, special.audio, num_audio_tokens(length), special.audio_end);
    raw.audio_frames.push_back(length);
    frames.push_back(draw(numbers.audio->mel_bins, length));
  }
  add_text(stretch * (2 + below(6)));
  if (!pixels.empty()) raw.pixel_values = at::cat(pixels);
  if (!frames.empty()) raw.input_features = at::cat(frames, 1);
  raw.lengths = {static_cast<int64_t>(ids.size())};
  std::vector<int64_t> targets(ids.size(), -100);
  for (size_t i = 0; i + 1 < ids.size(); ++i) {
    if (ids[i + 1] != special.image && ids[i + 1] != special.video && ids[i + 1] != special.audio && below(5) > 0)
      targets[i] = ids[i + 1];
  }
  raw.input_ids = at::tensor(ids, at::kLong);
  raw.targets = at::tensor(targets, at::kLong);
  return raw;
}

/// The samples of a step's batch: the same whatever the plan.
inline std::vector<RawInputs> example_batch(const TrainingExample& example, const ModelNumbers& numbers,
                                            int64_t vocabulary, int64_t step) {
  std::vector<RawInputs> samples;
  for (int64_t i = 0; i < example.batch(); ++i) {
    const bool has_media = step != example.bare_step && !example.bare_samples.contains(i);
    samples.push_back(draw_example(numbers, vocabulary, static_cast<uint64_t>(1000 * step + i), has_media,
                                   example.has_videos, example.stretch));
  }
  if (example.has_masked_sample) samples.front().targets = at::full_like(samples.front().targets, -100);
  if (example.has_short_sample) {
    samples.back() = {
        .input_ids = at::full({1}, step, at::kLong), .lengths = {1}, .targets = at::full({1}, -100, at::kLong)};
  }
  // What models with dropout drop is the same whatever the plan, too.
  const bool of_encoders = encoders_drop_elements(example_model(example).modules);
  for (int64_t i = 0; i < example.batch(); ++i)
    samples[static_cast<size_t>(i)].draws = {
        .seed = kExampleSeed, .step = step, .samples = {i}, .of_encoders = of_encoders};
  return samples;
}

inline Inputs packed_example(const ModelNumbers& numbers, int64_t vocabulary, std::span<const RawInputs> samples,
                             at::ScalarType type) {
  RawInputs all;
  std::vector<at::Tensor> ids, targets, pixels, videos, frames;
  for (const RawInputs& sample : samples) {
    if (sample.pixel_values_videos.defined()) videos.push_back(sample.pixel_values_videos);
    all.video_grids.insert(all.video_grids.end(), sample.video_grids.begin(), sample.video_grids.end());
    ids.push_back(sample.input_ids);
    targets.push_back(sample.targets);
    if (sample.pixel_values.defined()) pixels.push_back(sample.pixel_values);
    if (sample.input_features.defined()) frames.push_back(sample.input_features);
    all.lengths.insert(all.lengths.end(), sample.lengths.begin(), sample.lengths.end());
    if (sample.draws) {
      if (!all.draws) {
        all.draws = *sample.draws;
        all.draws->samples.clear();
      }
      all.draws->samples.insert(all.draws->samples.end(), sample.draws->samples.begin(), sample.draws->samples.end());
    }
    all.image_grids.insert(all.image_grids.end(), sample.image_grids.begin(), sample.image_grids.end());
    all.audio_frames.insert(all.audio_frames.end(), sample.audio_frames.begin(), sample.audio_frames.end());
  }
  all.input_ids = at::cat(ids);
  all.targets = at::cat(targets);
  if (!pixels.empty()) all.pixel_values = at::cat(pixels);
  if (!videos.empty()) all.pixel_values_videos = at::cat(videos);
  if (!frames.empty()) all.input_features = at::cat(frames, 1);
  auto inputs = prepare_inputs(numbers, vocabulary, all);
  WEFT_CHECK(inputs.ok(), "{}", inputs.error().message());
  return inputs->to(at::TensorOptions().dtype(type));
}

inline int64_t num_example_targets(const std::vector<RawInputs>& samples) {
  int64_t count = 0;
  for (const RawInputs& sample : samples) count += sample.targets.ne(-100).sum().item<int64_t>();
  return count;
}

struct TrainingOutcome {
  std::vector<double> losses;
  std::vector<double> balance_losses;
  std::vector<double> norms;
  std::map<std::string, at::Tensor> weights;
  std::vector<ExpertLoad> loads;  ///< of every step; nothing where they are not counted
};

/// All rows get the same first element, by which routers prefer an expert to those before it.
inline void crowd_experts(const std::vector<ParameterPtr>& parameters) {
  const at::NoGradGuard no_graph;
  for (const ParameterPtr& parameter : parameters) {
    const at::Tensor value = parameter->value.detach();
    if (parameter->name() == "model.embed_tokens.weight") value.select(1, 0).fill_(0.5);
    if (parameter->name().ends_with(".mlp.gate.weight"))
      value.select(1, 0).copy_(at::arange(value.size(0), at::kDouble) / 2);
  }
}

/// Whether a rule is about a weight.
inline bool is_meant(const TrainRule& rule, const std::string& name) {
  std::string expression;
  for (const char c : rule.weights)
    expression += c == '*' ? ".*" : c == '?' ? "." : c == '.' ? "\\." : std::string(1, c);
  return std::regex_match(name, std::regex(expression));
}

/// The module that has a weight of this name.
inline ModuleKind module_with(const Model& model, const std::string& weight) {
  for (const Module& module : model.modules) {
    for (int64_t place = 0; place < num_blocks(module); ++place) {
      for (const auto& names : weight_names(module, place)) {
        if (std::find(names.begin(), names.end(), weight) != names.end()) return module.kind;
      }
    }
  }
  WEFT_CHECK(false, "no module has a weight {}", weight);
}

/// One rank in double precision, with AdamW written out. Without a balancing loss the batch is one piece; that loss is
/// of a microbatch, so that with it they are the plan's.
inline TrainingOutcome train_by_hand(const TrainingExample& example, const Model& model) {
  // Threads that share out operators as small as these spend their time spinning until the others are done, the more
  // the more programs share the cores.
  at::set_num_threads(1);
  WholeParameters maker(at::TensorOptions().dtype(at::kDouble));
  const Network network = *Network::create(model, maker);
  initialize_weights(maker.all(), kExampleSeed);
  for (const ParameterPtr& parameter : maker.all()) {
    const auto& pieces_of_it = parameter->spec.pieces;
    const std::string& named = std::find_if(pieces_of_it.begin(), pieces_of_it.end(), [](const WeightPiece& p) {
                                 return !p.name.empty();
                               })->name;
    const ModuleKind kind = module_with(model, named);
    bool is_trained = std::find(example.frozen.begin(), example.frozen.end(), kind) == example.frozen.end();
    if (model.config.contains("adapters")) is_trained = is_trained && named.find(".lora_") != std::string::npos;
    for (const TrainRule& rule : example.trainable) {
      if (is_meant(rule, named)) is_trained = rule.train;
    }
    parameter->value.set_requires_grad(is_trained);
  }
  if (example.crowds_experts) crowd_experts(maker.all());
  const AdamWSettings settings{.epsilon = example.epsilon};
  TrainingOutcome outcome;
  std::map<Parameter*, std::pair<at::Tensor, at::Tensor>> moments;
  const int64_t pieces = example.balance_coefficient > 0 ? example.microbatches * example.dp : 1;
  const int64_t samples_a_piece = example.batch() / pieces;
  for (int64_t step = 1; step <= example.steps; ++step) {
    const int64_t vocabulary = network.decoder().vocabulary();
    const std::vector<RawInputs> samples = example_batch(example, network.numbers(), vocabulary, step);
    const auto num_targets = static_cast<double>(num_example_targets(samples));
    double loss_sum = 0;
    const double balance_scale = example.balance_coefficient / static_cast<double>(pieces);
    std::vector<at::Tensor> balance_losses;
    for (int64_t piece = 0; piece < pieces; ++piece) {
      const std::span here = std::span(samples).subspan(static_cast<size_t>(piece * samples_a_piece),
                                                        static_cast<size_t>(samples_a_piece));
      RunContext context;
      if (balance_scale > 0) context = {.balance_scale = balance_scale, .balance_losses = &balance_losses};
      const at::Tensor loss =
          network.loss_sum(packed_example(network.numbers(), vocabulary, here, at::kDouble), {.context = context});
      loss_sum += loss.item<double>();
      if (loss.requires_grad()) (loss / num_targets).backward();
    }
    outcome.losses.push_back(loss_sum / num_targets);
    outcome.balance_losses.push_back(0);
    for (const at::Tensor& loss : balance_losses) outcome.balance_losses.back() += balance_scale * loss.item<double>();
    const at::NoGradGuard no_graph;
    double squares = 0;
    for (const ParameterPtr& p : maker.all()) {
      if (p->gradient.defined()) squares += p->gradient.square().sum().item<double>();
    }
    outcome.norms.push_back(std::sqrt(squares));
    const double scale = std::min(1.0, kExampleMaxNorm / (std::sqrt(squares) + 1e-6));
    for (const ParameterPtr& p : maker.all()) {
      if (!p->is_trainable()) continue;
      auto& [first, second] = moments[p.get()];
      if (!first.defined()) {
        first = at::zeros_like(p->value);
        second = at::zeros_like(p->value);
      }
      const at::Tensor gradient = p->gradient.defined() ? p->gradient * scale : at::zeros_like(p->value);
      at::Tensor value = p->value.detach();
      if (value.dim() >= 2) value.mul_(1 - kExampleRate * settings.weight_decay);
      first.mul_(settings.beta1).add_(gradient, 1 - settings.beta1);
      second.mul_(settings.beta2).addcmul_(gradient, gradient, 1 - settings.beta2);
      const double c1 = 1 - std::pow(settings.beta1, static_cast<double>(step));
      const double c2 = 1 - std::pow(settings.beta2, static_cast<double>(step));
      value.sub_(first / c1 / ((second / c2).sqrt() + settings.epsilon) * kExampleRate);
      p->gradient.reset();
    }
  }
  const NamedWeights weights(maker.all());
  for (const std::string& name : weights.names()) outcome.weights[name] = weights.value(name);
  return outcome;
}

/// What one rank gives, computed once for all examples of a program that differ only in how ranks share it out.
inline const TrainingOutcome& expected_training(const TrainingExample& example, const Model& model) {
  std::string key = fmt::format(
      "{} batch {} in {}, {} steps, bare {} at {}, {}{}{}{}, balance {}, epsilon {}, frozen", model.config.dump(),
      example.batch(), example.balance_coefficient > 0 ? example.microbatches * example.dp : 1, example.steps,
      fmt::join(example.bare_samples, "."), example.bare_step, example.has_videos, example.crowds_experts,
      example.has_masked_sample, example.has_short_sample, example.balance_coefficient, example.epsilon);
  for (const ModuleKind kind : example.frozen) key += fmt::format(" {}", name_of(kind));
  for (const TrainRule& rule : example.trainable) key += fmt::format(", {} {}", rule.weights, rule.train);
  static std::map<std::string, TrainingOutcome> known;
  const auto found = known.find(key);
  return found != known.end() ? found->second : known.emplace(key, train_by_hand(example, model)).first->second;
}

inline std::vector<std::vector<int64_t>> even_example_layers(int64_t layers, int64_t pp, int64_t vpp) {
  std::vector<std::vector<int64_t>> dealt(static_cast<size_t>(pp), std::vector<int64_t>(static_cast<size_t>(vpp)));
  for (int64_t stage = 0; stage < pp * vpp; ++stage) {
    dealt[static_cast<size_t>(stage % pp)][static_cast<size_t>(stage / pp)] =
        layers * (stage + 1) / (pp * vpp) - layers * stage / (pp * vpp);
  }
  return dealt;
}

/// Takes ranks from `next_rank` on where it has ranks of its own.
inline ModulePlan example_encoder_plan(const TrainingExample& example, const EncoderExample& encoder,
                                       const Module& module, int64_t& next_rank) {
  ModulePlan settings{.kind = module.kind,
                      .placement = encoder.placement,
                      .axis_order = default_axis_order(),
                      .layers = encoder.layers,
                      .mbs_scale = encoder.mbs_scale,
                      .mbs_parts = encoder.mbs_parts,
                      .form = encoder.form,
                      .live_macro_batches = encoder.live,
                      .recompute_from_inputs = encoder.recompute_from_inputs};
  settings.degrees() = {.tp = encoder.tp,
                        .cp = encoder.cp,
                        .cp_ulysses = encoder.ulysses,
                        .pp = encoder.pp,
                        .dp = encoder.dp,
                        .sequence_parallel = encoder.sequence_parallel,
                        .zero = encoder.zero};
  if (encoder.placement == ModulePlacement::kDisjoint) {
    for (int64_t i = 0; i < encoder.tp * encoder.cp * encoder.pp * encoder.dp; ++i)
      settings.ranks.push_back(next_rank++);
  } else {
    // The pipeline's axis is the outermost.
    const int64_t ranks_a_row = example.tp * example.cp * example.dp;
    for (int64_t rank = 0; rank < ranks_a_row * example.pp; ++rank) {
      const bool is_on = encoder.rows.empty() ||
                         std::find(encoder.rows.begin(), encoder.rows.end(), rank / ranks_a_row) != encoder.rows.end();
      if (is_on) settings.ranks.push_back(rank);
    }
  }
  if (settings.layers.empty())
    settings.layers = even_example_layers(static_cast<int64_t>(module.layers.size()), encoder.pp, 1);
  for (const auto& chunks : settings.layers) {
    const int64_t full = std::min(chunks.front(), example.recompute.full);
    settings.recompute.push_back(
        {RecomputeCounts{.full = full, .selective = std::min(chunks.front() - full, example.recompute.selective)}});
  }
  return settings;
}

/// Stores an order where encoders fill bubbles, as the search does.
inline void fill_example_bubbles(Plan& plan) {
  const auto filler = std::find_if(plan.modules.begin(), plan.modules.end(), [](const ModulePlan& module) {
    return !module.is_in_pipeline() && module.form == EncoderForm::kFill;
  });
  if (filler == plan.modules.end()) return;
  const auto pipeline = pipeline_schedule(plan);
  auto placements = encoder_placements(plan);
  WEFT_CHECK(placements.ok(), "{}", placements.error().message());
  for (EncoderPlacement& placement : *placements) {
    placement.forward_ms.assign(placement.rows.groups.size(), 0.7);
    placement.backward_ms.assign(placement.rows.groups.size(), 1.4);
  }
  const auto stages = static_cast<size_t>(pipeline->num_stages());
  const StageDurations durations{.forward_ms = std::vector(stages, 1.0),
                                 .backward_input_ms = std::vector(stages, 1.0),
                                 .backward_weight_ms = std::vector(stages, 1.0)};
  const auto placed = place_encoders(*pipeline, *placements, durations);
  WEFT_CHECK(placed.ok(), "{}", placed.error().message());
  filler->actions = stored_rows(*placed);
}

inline Plan example_training_plan(const TrainingExample& example, const Model& model) {
  Plan plan;
  plan.model = model;
  plan.workload.frozen = example.frozen;
  plan.trainable = example.trainable;
  plan.workload.global_batch_samples = example.batch();
  const int64_t text_ranks = example.tp * example.cp * example.pp * example.dp;
  plan.world_size = text_ranks;
  plan.overlap_dp = example.overlaps;
  plan.balance = example.balance;
  plan.schedule = {.name = example.schedule, .mbs = example.mbs, .microbatches = example.microbatches};
  plan.precision = example.precision;
  plan.buckets_mb = example.buckets_mb;
  for (const Module& module : model.modules) {
    const bool is_llm = module.kind == ModuleKind::kLlm;
    if (const auto beside = example.beside.find(module.kind); beside != example.beside.end()) {
      plan.modules.push_back(example_encoder_plan(example, beside->second, module, plan.world_size));
      continue;
    }
    ModulePlan settings{.kind = module.kind,
                        .placement = is_llm ? ModulePlacement::kBase : ModulePlacement::kInline,
                        .axis_order = default_axis_order()};
    settings.degrees() = {.tp = example.tp,
                          .cp = example.cp,
                          .cp_ulysses = is_llm ? example.ulysses : example.encoder_ulysses,
                          .ep = is_llm ? example.ep : 1,
                          .pp = example.pp,
                          .vpp = is_llm ? example.vpp : 1,
                          .dp = example.dp,
                          .sequence_parallel = is_llm ? example.sequence_parallel : example.divides_encoder_rows(),
                          .experts_over_tp = is_llm && example.experts_over_tp,
                          .zero = example.zero};
    for (int64_t rank = 0; rank < text_ranks; ++rank) settings.ranks.push_back(rank);
    const auto count = static_cast<int64_t>(module.layers.size());
    settings.layers = is_llm                               ? example.layers
                      : module.kind == ModuleKind::kVision ? example.vision_layers
                                                           : example.audio_layers;
    if (settings.layers.empty()) {
      settings.layers = even_example_layers(is_llm ? count : 0, example.pp, example.vpp);
      if (!is_llm) settings.layers[0][0] = count;
    }
    for (const auto& chunks : settings.layers) {
      settings.recompute.emplace_back();
      for (const int64_t layers : chunks) {
        const int64_t full = std::min(layers, example.recompute.full);
        settings.recompute.back().push_back(
            RecomputeCounts{.full = full, .selective = std::min(layers - full, example.recompute.selective)});
      }
    }
    plan.modules.push_back(std::move(settings));
  }
  plan.world_size += example.num_idle_ranks;
  plan.idle_ranks = example.num_idle_ranks > 0;
  plan.cluster.nodes = 1;
  plan.cluster.devices_per_node = plan.world_size;
  if (example.is_explicit) plan = *with_rows(plan, *pipeline_schedule(plan));
  if (!example.rows.empty()) {
    plan.schedule.name = std::string(kExplicitSchedule);
    plan.schedule.rows = *parse_explicit_rows(example.rows);
  }
  fill_example_bubbles(plan);
  return plan;
}

/// A rank's share of a batch.
inline std::vector<Inputs> example_microbatches(const TrainingExample& example, const TrainingRank& rank,
                                                const std::vector<RawInputs>& samples) {
  std::vector<Inputs> microbatches;
  for (int64_t m = 0; m < example.microbatches; ++m) {
    const int64_t first = (m * example.dp + rank.data_parallel_rank()) * example.mbs;
    microbatches.push_back(
        packed_example(rank.numbers(), rank.vocabulary(),
                       std::span(samples).subspan(static_cast<size_t>(first), static_cast<size_t>(example.mbs)),
                       c10::typeMetaToScalarType(rank.options().dtype())));
  }
  return microbatches;
}

/// Samples reassigned by what they roughly take.
inline BatchAssignment example_assignment(const BatchShape& shape, Balance balance,
                                          const std::vector<RawInputs>& samples,
                                          const std::vector<MediaRowCounts>& media) {
  if (balance == Balance::kNone) return assign_in_order(shape);
  BatchCosts costs;
  for (size_t sample = 0; sample < samples.size(); ++sample) {
    const auto tokens = static_cast<double>(samples[sample].input_ids.size(0));
    costs.llm.push_back(tokens + 0.01 * tokens * tokens);
    for (const auto& [kind, encoder] : shape.encoders)
      costs.encoders[kind].push_back(static_cast<double>(media[sample].of(kind)));
  }
  return assign_balanced(shape, {.llm = balance != Balance::kEncoder, .encoders = balance != Balance::kLlm}, costs);
}

/// A rank's share of a batch, of the llm and of encoders beside its pipeline.
inline StepBatch example_step_batch(const TrainingRank& rank, const std::vector<RawInputs>& samples,
                                    Balance balance = Balance::kNone) {
  StepBatch batch;
  const MediaTokens& tokens = rank.numbers().media.tokens;
  for (const RawInputs& sample : samples) {
    const auto count = [&](int64_t token) { return sample.input_ids.eq(token).sum().item<int64_t>(); };
    batch.media.push_back({.image = count(tokens.image), .video = count(tokens.video), .audio = count(tokens.audio)});
  }
  batch.assignment = example_assignment(rank.batch_shape(), balance, samples, batch.media);
  const auto pack = [&](const std::vector<int64_t>& indices) {
    std::vector<RawInputs> packed;
    for (const int64_t index : indices) packed.push_back(samples[static_cast<size_t>(index)]);
    if (packed.empty()) return Inputs();
    return packed_example(rank.numbers(), rank.vocabulary(), packed, c10::typeMetaToScalarType(rank.options().dtype()));
  };
  const auto& encoders = batch.assignment.encoders;
  if (const auto text = rank.data_parallel_rank(ModuleKind::kLlm)) {
    for (const auto& indices : batch.assignment.llm[static_cast<size_t>(*text)]) {
      Inputs& inputs = batch.microbatches.emplace_back(pack(indices));
      if (encoders.contains(ModuleKind::kVision)) inputs.vision.reset();
      if (encoders.contains(ModuleKind::kAudio)) inputs.audio.reset();
      inputs = inputs.staged(rank.options());
    }
  }
  for (const auto& [kind, shares] : encoders) {
    const auto share = rank.data_parallel_rank(kind);
    if (!share) continue;
    for (const auto& indices : shares[static_cast<size_t>(*share)]) {
      const Inputs all = pack(indices);
      Inputs& media = batch.encoders[kind].emplace_back();
      if (kind == ModuleKind::kVision) media.vision = all.vision;
      if (kind == ModuleKind::kAudio) media.audio = all.audio;
      media = media.staged(rank.options());
    }
  }
  return batch;
}

/// Puts the parts of weights that a rank holds into whole ones; elements of none are not numbers. Copies of a part must
/// be equal to the last digit.
inline void collect_example_weights(TrainingRank& rank, std::map<std::string, at::Tensor>& weights) {
  for (const ParameterPtr& parameter : rank.parameters()) {
    int64_t begin = 0;
    for (const WeightPiece& piece : parameter->spec.pieces) {
      const at::Tensor elements = parameter->value.detach().reshape({-1}).narrow(0, begin, piece.num_elements());
      begin += piece.num_elements();
      if (piece.name.empty()) continue;
      // As files have it.
      at::Tensor& stored = weights[piece.name];
      const NamedShape weight{piece.name, piece.shape, piece.is_transposed};
      if (!stored.defined()) stored = at::full(weight.file_shape(), std::nan(""), at::kDouble);
      at::Tensor part = held_part(piece, piece.is_transposed ? stored.t() : stored);
      const at::Tensor found = elements.view(part.sizes());
      if (part.numel() > 0 && !part.flatten()[0].isnan().item<bool>()) {
        EXPECT_LE((part - found).abs().max().item<double>(), 1e-12) << piece.name;
      }
      part.copy_(found);
    }
  }
}

/// Trains by a plan what the example says of samples and steps; nothing where there are not as many ranks as the plan
/// needs. Of processes each knows its own part of the weights.
inline std::optional<TrainingOutcome> train_plan_on(
    const PlanRanks& ranks, const TrainingExample& example, const Plan& plan,
    const std::function<void(const World&, const StepReport&)>& after_step = {}) {
  TrainingOutcome outcome;
  std::mutex guard;
  const bool has_run = ranks.run(plan.world_size, [&](World& world) {
    at::set_num_threads(1);
    auto made = TrainingRank::create(
        world, plan,
        {.adamw = {.epsilon = example.epsilon}, .max_gradient_norm = kExampleMaxNorm, .seed = kExampleSeed});
    WEFT_CHECK(made.ok(), "{}", made.error().message());
    TrainingRank& rank = **made;
    if (example.crowds_experts) {
      rank.gather_values();
      crowd_experts(rank.parameters());
      rank.adopt_values();
    }
    for (int64_t step = 1; step <= example.steps; ++step) {
      const std::vector<RawInputs> samples = example_batch(example, rank.numbers(), rank.vocabulary(), step);
      const StepReport report =
          rank.step(example_step_batch(rank, samples, plan.balance), num_example_targets(samples), kExampleRate);
      const std::lock_guard lock(guard);
      if (after_step) after_step(world, report);
      if (world.rank() != 0 && !ranks.are_processes) continue;
      outcome.losses.push_back(report.loss);
      outcome.balance_losses.push_back(report.balance_loss);
      outcome.norms.push_back(report.gradient_norm);
      if (report.experts) outcome.loads.push_back(*report.experts);
    }
    rank.gather_values();
    const std::lock_guard lock(guard);
    collect_example_weights(rank, outcome.weights);
  });
  return has_run ? std::optional(std::move(outcome)) : std::nullopt;
}

inline TrainingOutcome train_plan(const TrainingExample& example, const Plan& plan) {
  return *train_plan_on(thread_ranks(), example, plan);
}

inline TrainingOutcome train_example(const TrainingExample& example, const Model& model) {
  return train_plan(example, example_training_plan(example, model));
}

/// Has an example train what a plan that was drawn says, in one piece, and the plan compute as the example does.
inline void train_by(Plan& plan, TrainingExample& example) {
  plan.precision = example.precision;
  example.mbs = plan.workload.global_batch_samples;
  example.microbatches = 1;
  example.frozen = plan.workload.frozen;
  example.trainable = plan.trainable;
}

/// Where a dim has fewer units than ranks, a process may hold nothing of a weight, and knows nothing of it.
inline void leave_out_unknown(TrainingOutcome& outcome) {
  std::erase_if(outcome.weights, [](const auto& weight) { return weight.second.isnan().all().template item<bool>(); });
  EXPECT_FALSE(outcome.weights.empty());
}

/// Relative tolerances.
struct TrainingTolerance {
  double numbers = 1e-9;
  double weights = 1e-9;
  bool allows_missing = false;  ///< weights that were not found, or elements of them that are not numbers
};

inline void expect_same_training(const TrainingOutcome& found, const TrainingOutcome& expected,
                                 const TrainingTolerance& tolerance = {}) {
  ASSERT_EQ(found.losses.size(), expected.losses.size());
  const auto near = [&](double is, double should, const char* what, size_t step) {
    EXPECT_NEAR(is, should, tolerance.numbers * std::abs(should)) << what << " of step " << step + 1;
  };
  for (size_t step = 0; step < expected.losses.size(); ++step) {
    near(found.losses[step], expected.losses[step], "loss", step);
    near(found.balance_losses[step], expected.balance_losses[step], "balancing loss", step);
    near(found.norms[step], expected.norms[step], "gradient's norm", step);
  }
  if (!tolerance.allows_missing) {
    ASSERT_EQ(found.weights.size(), expected.weights.size());
  }
  for (const auto& [name, weight] : found.weights) {
    const at::Tensor& value = expected.weights.at(name);
    const double scale = value.abs().max().item<double>();
    const at::Tensor difference = tolerance.allows_missing ? (weight - value).nan_to_num(0) : weight - value;
    EXPECT_LE(difference.abs().max().item<double>(), tolerance.weights * scale) << name;
    EXPECT_FALSE(weight.isnan().all().item<bool>()) << name;
  }
}

/// The plan with strategies for modules of it.
inline Plan with_strategies(Plan plan, std::map<ModuleKind, BlockEntries> strategies) {
  for (ModulePlan& module : plan.modules) {
    if (const auto own = strategies.find(module.kind); own != strategies.end())
      module.strategy = {.mesh = {{"tp", module.tp}}, .blocks = std::move(own->second)};
  }
  const auto wrong = apply_strategies(plan);
  WEFT_CHECK(!wrong, "{}", wrong->message());
  return plan;
}

/// The plan with a strategy for its llm.
inline Plan with_llm_strategy(Plan plan, BlockEntries blocks) {
  return with_strategies(std::move(plan), {{ModuleKind::kLlm, std::move(blocks)}});
}

}  // namespace weft
