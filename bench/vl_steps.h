#pragma once

#include <functional>
#include <map>
#include <mutex>
#include <numeric>

#include <ATen/Parallel.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/tensor.h>
#include <fmt/format.h>

#include "bench/must.h"
#include "weft/base/clock.h"
#include "weft/base/document.h"
#include "weft/comm/run_ranks.h"
#include "weft/families/media/audio_index.h"
#include "weft/meaning/check.h"
#include "weft/meaning/plan_schedule.h"
#include "weft/pipeline/training_rank.h"
#include "weft/spec/cluster.h"
#include "weft/spec/model_reader.h"
#include "weft/spec/sample_load.h"
#include "weft/tensor/memory_count.h"

// What benchmarks of encoders beside a pipeline share: vision-language models and plans for them, samples of given
// sizes, and steps on thread ranks, taken in turn with those of other plans.
namespace weft {

inline Cluster scenario_cluster(const char* name) {
  const auto folder = std::filesystem::path(WEFT_SOURCE_DIR) / "scenarios/clusters";
  return must(read_cluster_file(folder / fmt::format("{}.yaml", name)));
}

inline Model qwen2_vl_7b() {
  return must(read_model_file(std::filesystem::path(WEFT_SOURCE_DIR) / "scenarios/models/qwen2-vl-7b.json"));
}

struct VlSizes {
  int64_t width = 16, inner = 32, layers = 4, heads = 2;
  int64_t vision_width = 16, vision_layers = 2, vision_heads = 2;
  int64_t vocabulary = 128;
  int64_t patch_size = 2;
  int64_t audio_width = 16, audio_layers = 0, audio_heads = 2;  ///< with layers: an Omni model, which hears, too
};

/// As a configuration of Qwen2.5-Omni's thinker.
inline Json small_omni(const VlSizes& sizes, const Json& text, int64_t special) {
  const Json vision = {{"depth", sizes.vision_layers},
                       {"hidden_size", sizes.vision_width},
                       {"intermediate_size", 2 * sizes.vision_width},
                       {"out_hidden_size", sizes.width},
                       {"hidden_act", "silu"},
                       {"num_heads", sizes.vision_heads},
                       {"in_channels", 3},
                       {"patch_size", sizes.patch_size},
                       {"spatial_merge_size", 2},
                       {"temporal_patch_size", 1},
                       {"window_size", 8 * sizes.patch_size},
                       {"fullatt_block_indexes", {0}}};
  const Json audio = {{"d_model", sizes.audio_width},
                      {"encoder_layers", sizes.audio_layers},
                      {"encoder_attention_heads", sizes.audio_heads},
                      {"encoder_ffn_dim", 2 * sizes.audio_width},
                      {"activation_function", "gelu"},
                      {"max_source_positions", 40},
                      {"n_window", 5},
                      {"num_mel_bins", 8},
                      {"output_dim", sizes.width}};
  return {{"model_type", "qwen2_5_omni_thinker"},
          {"tie_word_embeddings", false},
          {"text_config", text},
          {"vision_config", vision},
          {"audio_config", audio},
          {"image_token_index", special},
          {"video_token_index", special + 1},
          {"vision_start_token_id", special + 2},
          {"vision_end_token_id", special + 3},
          {"audio_token_index", special + 4},
          {"audio_start_token_id", special + 5},
          {"audio_end_token_id", special + 6},
          {"position_id_per_seconds", 5},
          {"seconds_per_chunk", 2}};
}

inline Model small_vl(const VlSizes& sizes) {
  const int64_t half = sizes.width / sizes.heads / 2;
  const int64_t special = sizes.vocabulary - 8;
  const Json text = {
      {"vocab_size", sizes.vocabulary},
      {"hidden_size", sizes.width},
      {"intermediate_size", sizes.inner},
      {"num_hidden_layers", sizes.layers},
      {"num_attention_heads", sizes.heads},
      {"num_key_value_heads", sizes.heads},
      {"hidden_act", "silu"},
      {"max_position_embeddings", 32768},
      {"rms_norm_eps", 1e-6},
      {"rope_theta", 1e6},
      {"rope_scaling", {{"type", "mrope"}, {"mrope_section", {half - 2 * (half / 3), half / 3, half / 3}}}}};
  if (sizes.audio_layers > 0)
    return must(read_model({.source = "bench", .root = small_omni(sizes, text, special)}, "small Omni"));
  const Json vision = {{"depth", sizes.vision_layers},
                       {"embed_dim", sizes.vision_width},
                       {"hidden_size", sizes.width},
                       {"hidden_act", "quick_gelu"},
                       {"mlp_ratio", 4},
                       {"num_heads", sizes.vision_heads},
                       {"in_channels", 3},
                       {"patch_size", sizes.patch_size},
                       {"spatial_merge_size", 2},
                       {"temporal_patch_size", 1}};
  const Json config = {{"model_type", "qwen2_vl"},
                       {"tie_word_embeddings", false},
                       {"text_config", text},
                       {"vision_config", vision},
                       {"image_token_id", special},
                       {"video_token_id", special + 1},
                       {"vision_start_token_id", special + 2},
                       {"vision_end_token_id", special + 3}};
  return must(read_model({.source = "bench", .root = config}, "small VL"));
}

/// The llm on the first ranks of a plan, vision on the same or behind them.
struct VlSetting {
  int64_t pp = 1, dp = 1, microbatches = 8;
  ModulePlacement placement = ModulePlacement::kColocated;
  int64_t vision_dp = 1;
  EncoderForm form = EncoderForm::kBefore;
  int64_t mbs_scale = 1;
  int64_t live = 0;
  bool recompute_from_inputs = false;
};

/// Without an order for `fill`.
inline Plan vl_plan(const Model& model, const Cluster& cluster, const Workload& workload, Precision precision,
                    const VlSetting& setting) {
  Plan plan{.model = model, .cluster = cluster, .workload = workload};
  plan.workload.precision = precision;
  plan.workload.global_batch_samples = setting.dp * setting.microbatches;
  plan.schedule = {.name = "1f1b", .mbs = 1, .microbatches = setting.microbatches};
  plan.precision = {.compute = precision, .master = Precision::kFp32, .reduce = Precision::kFp32};
  plan.batches = 0;
  const auto num_blocks = [&](ModuleKind kind) {
    for (const Module& module : model.modules) {
      if (module.kind == kind) return std::ssize(module.layers);
    }
    WEFT_CHECK(false, "{} has no {}", model.name, name_of(kind));
  };
  ModulePlan llm{.kind = ModuleKind::kLlm, .placement = ModulePlacement::kBase, .axis_order = default_axis_order()};
  llm.degrees() = {.pp = setting.pp, .dp = setting.dp};
  const int64_t layers = num_blocks(ModuleKind::kLlm);
  for (int64_t stage = 0; stage < setting.pp; ++stage) {
    llm.layers.push_back({layers * (stage + 1) / setting.pp - layers * stage / setting.pp});
    llm.recompute.push_back({{}});
  }
  llm.ranks.resize(static_cast<size_t>(setting.pp * setting.dp));
  std::iota(llm.ranks.begin(), llm.ranks.end(), 0);
  ModulePlan vision{.kind = ModuleKind::kVision,
                    .placement = setting.placement,
                    .axis_order = default_axis_order(),
                    .layers = {{num_blocks(ModuleKind::kVision)}},
                    .recompute = {{{}}},
                    .mbs_scale = setting.mbs_scale,
                    .form = setting.form,
                    .live_macro_batches = setting.live,
                    .recompute_from_inputs = setting.recompute_from_inputs};
  vision.dp = setting.vision_dp;
  const bool is_disjoint = setting.placement == ModulePlacement::kDisjoint;
  vision.ranks.resize(static_cast<size_t>(setting.vision_dp));
  std::iota(vision.ranks.begin(), vision.ranks.end(), is_disjoint ? std::ssize(llm.ranks) : 0);
  plan.world_size = std::ssize(llm.ranks) + (is_disjoint ? setting.vision_dp : 0);
  plan.cluster.devices_per_node = plan.world_size;
  plan.modules = {vision, llm};
  return plan;
}

/// A sequence of tokens, of which square images and clips take a part.
struct VlSample {
  int64_t tokens = 0;
  std::vector<int64_t> image_sides;       ///< in patches
  std::vector<int64_t> clip_frames = {};  ///< of mel spectra

  SampleLoad load() const {
    SampleLoad load{.llm = {{static_cast<double>(tokens), 1}}};
    for (const int64_t side : image_sides) load.vision.push_back({static_cast<double>(side * side), 1});
    return load;
  }
  int64_t image_rows() const {
    int64_t rows = 0;
    for (const int64_t side : image_sides) rows += side * side / 4;
    return rows;
  }
  int64_t audio_rows() const {
    int64_t rows = 0;
    for (const int64_t frames : clip_frames) rows += num_audio_tokens(frames);
    return rows;
  }
};

inline Inputs vl_inputs(const TrainingRank& rank, const std::vector<VlSample>& samples,
                        const std::vector<int64_t>& indices) {
  if (indices.empty()) return {};
  const MediaTokens& special = rank.numbers().media.tokens;
  RawInputs raw;
  std::vector<int64_t> ids;
  int64_t patches = 0, frames = 0;
  for (const int64_t index : indices) {
    const VlSample& sample = samples[static_cast<size_t>(index)];
    const auto begin = std::ssize(ids);
    for (const int64_t side : sample.image_sides) {
      ids.push_back(special.vision_start);
      ids.insert(ids.end(), static_cast<size_t>(side * side / 4), special.image);
      ids.push_back(special.vision_end);
      raw.image_grids.push_back({1, side, side});
      patches += side * side;
    }
    for (const int64_t clip : sample.clip_frames) {
      ids.push_back(special.audio_start);
      ids.insert(ids.end(), static_cast<size_t>(num_audio_tokens(clip)), special.audio);
      ids.push_back(special.audio_end);
      raw.audio_frames.push_back(clip);
      frames += clip;
    }
    WEFT_CHECK(std::ssize(ids) - begin < sample.tokens, "{} tokens are too few for their media", sample.tokens);
    while (std::ssize(ids) - begin < sample.tokens) ids.push_back(std::ssize(ids) * 7919 % (rank.vocabulary() - 8));
    raw.lengths.push_back(sample.tokens);
  }
  raw.input_ids = at::tensor(ids, at::kLong);
  raw.targets = raw.input_ids.roll(-1);
  if (patches > 0)
    raw.pixel_values =
        at::arange(patches * rank.numbers().vision->patch_elements(), at::kFloat).mul_(0.37).sin_().view({patches, -1});
  if (frames > 0) {
    const int64_t bins = rank.numbers().audio->mel_bins;
    raw.input_features = at::arange(bins * frames, at::kFloat).mul_(0.37).sin_().view({bins, frames});
  }
  return must(prepare_inputs(rank.numbers(), rank.vocabulary(), raw)).to(rank.options());
}

/// A rank's share of samples as they are assigned. Microbatches keep what encoders in the pipeline read.
inline StepBatch vl_step_batch(const TrainingRank& rank, const std::vector<VlSample>& samples,
                               const BatchAssignment& assignment, bool keeps_images = false, bool keeps_sound = false) {
  StepBatch batch{.assignment = assignment};
  for (const VlSample& sample : samples)
    batch.media.push_back({.image = sample.image_rows(), .audio = sample.audio_rows()});
  if (const auto text = rank.data_parallel_rank(ModuleKind::kLlm)) {
    for (const auto& indices : assignment.llm[static_cast<size_t>(*text)]) {
      Inputs& inputs = batch.microbatches.emplace_back(vl_inputs(rank, samples, indices));
      if (!keeps_images) inputs.vision.reset();
      if (!keeps_sound) inputs.audio.reset();
    }
  }
  const auto shares_of = [&](ModuleKind kind, bool keeps) -> std::vector<Inputs> {
    std::vector<Inputs> shares;
    const auto place = keeps ? std::nullopt : rank.data_parallel_rank(kind);
    if (!place || !assignment.encoders.contains(kind)) return shares;
    for (const auto& indices : assignment.encoders.at(kind)[static_cast<size_t>(*place)])
      shares.push_back(vl_inputs(rank, samples, indices));
    return shares;
  };
  for (Inputs& inputs : shares_of(ModuleKind::kVision, keeps_images))
    batch.encoders[ModuleKind::kVision].emplace_back().vision = std::move(inputs.vision);
  for (Inputs& inputs : shares_of(ModuleKind::kAudio, keeps_sound))
    batch.encoders[ModuleKind::kAudio].emplace_back().audio = std::move(inputs.audio);
  return batch;
}

/// A plan to take steps of.
struct VlCase {
  Plan plan;
  std::vector<VlSample> samples;
  std::optional<BatchAssignment> assignment = {};  ///< nothing: in order
  std::function<Pace(int64_t rank)> pace = {};
};

struct MeasuredRank {
  double own_ms = 0;  ///< of the step, without waiting for others
  std::vector<TimelineEvent> events;
  int64_t held_bytes = 0;  ///< the most after a forward or backward, on top of what was there before the step
  int64_t peak_bytes = 0;  ///< the most while one ran
};

/// The fastest of several steps.
struct MeasuredStep {
  double step_ms = 0;
  std::vector<double> all_ms;
  std::vector<MeasuredRank> ranks;
};

/// Steps of all cases in turn, so that whatever else the machine does troubles them alike.
inline std::vector<MeasuredStep> measure_steps(const std::vector<VlCase>& cases, int rounds) {
  const int64_t world_size = cases.front().plan.world_size;
  for (const VlCase& one : cases) {
    const std::vector<Violation> violations = check_plan(one.plan);
    WEFT_CHECK(violations.empty(), "{}: {}", violations.front().field, violations.front().message);
    WEFT_CHECK(one.plan.world_size == world_size, "plans of {} and of {} ranks", world_size, one.plan.world_size);
  }
  std::vector<MeasuredStep> best(cases.size());
  std::vector<MeasuredRank> now(static_cast<size_t>(world_size));
  std::mutex guard;
  const auto error = run_ranks({.size = world_size}, [&](World& world) {
    at::set_num_threads(1);
    const CountedThread counted(std::make_shared<MemoryCount>());
    std::vector<std::unique_ptr<TrainingRank>> ranks;
    std::vector<StepBatch> batches;
    std::vector<int64_t> num_targets;
    for (const VlCase& one : cases) {
      TrainingSettings settings{.seed = 1};
      if (one.pace) settings.pace = one.pace(world.rank());
      ranks.push_back(must(TrainingRank::create(world, one.plan, settings)));
      const BatchAssignment assignment = one.assignment.value_or(assign_in_order(ranks.back()->batch_shape()));
      batches.push_back(vl_step_batch(*ranks.back(), one.samples, assignment));
      int64_t tokens = 0;
      for (const VlSample& sample : one.samples) tokens += sample.tokens;
      num_targets.push_back(tokens);
    }
    for (int round = 0; round <= rounds; ++round) {
      for (size_t i = 0; i < cases.size(); ++i) {
        const int64_t bytes_before = current_memory_count()->current_bytes();
        world.all().barrier().wait();
        const double waited = world.waited_ms();
        const double start = now_ms();
        StepReport report = ranks[i]->step(batches[i], num_targets[i], 1e-3);
        MeasuredRank own{.own_ms = now_ms() - start - (world.waited_ms() - waited)};
        for (size_t e = 0; e < report.events.size(); ++e) {
          if (report.events[e].stream != Stream::kCompute || report.events[e].action.kind == ActionKind::kUpdate)
            continue;
          own.held_bytes = std::max(own.held_bytes, report.memory[e].held_bytes - bytes_before);
          own.peak_bytes = std::max(own.peak_bytes, report.memory[e].peak_bytes - bytes_before);
        }
        own.events = std::move(report.events);
        {
          const std::lock_guard lock(guard);
          now[static_cast<size_t>(world.rank())] = std::move(own);
        }
        world.all().barrier().wait();
        const double step_ms = now_ms() - start;
        if (world.rank() == 0 && round > 0) {  // the first finds memory and starts threads
          best[i].all_ms.push_back(step_ms);
          if (best[i].all_ms.size() == 1 || step_ms < best[i].step_ms) {
            best[i].step_ms = step_ms;
            best[i].ranks = now;
          }
        }
        world.all().barrier().wait();
      }
    }
  });
  WEFT_CHECK(!error, "{}", error->message());
  return best;
}

}  // namespace weft
