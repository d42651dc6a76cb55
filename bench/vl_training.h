#pragma once

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/tensor.h>
#include <fmt/format.h>

#include "bench/must.h"
#include "weft/base/clock.h"
#include "weft/base/document.h"
#include "weft/meaning/check.h"
#include "weft/pipeline/training_rank.h"
#include "weft/spec/adapters.h"
#include "weft/spec/model_reader.h"

// Training of Qwen2-VL on one rank, through the code that trains: 4 × 4,096 tokens for 2B and 2 × 4,096 for 7B, one
// image of 4,096 patches a sample, labels on all tokens.
namespace weft {

struct Case {
  std::string name;
  std::string model;  ///< of the scenarios; empty: a tiny one
  int64_t samples = 1;
  Precision states = Precision::kBf16;
  int64_t tokens = 4096;
  int64_t side = 64;  ///< of an image, in patches
  bool recomputes = false;
  int64_t adapter_rank = 0;  ///< 0: all weights are trained
  bool is_reversed = false;  ///< samples come in the other order, and sums with them
  bool recomputes_logits = false;
  int64_t layers = 0;  ///< that the llm keeps of the model's; 0: all

  int64_t image_rows() const { return side * side / 4; }
};

/// The same in bench/vl_step.py.
inline constexpr const char* kTinyModel = R"({
  "model_type": "qwen2_vl", "tie_word_embeddings": true,
  "text_config": {"vocab_size": 512, "hidden_size": 128, "intermediate_size": 256, "num_hidden_layers": 2,
                  "num_attention_heads": 4, "num_key_value_heads": 2, "hidden_act": "silu",
                  "max_position_embeddings": 4096, "rms_norm_eps": 1e-06, "rope_theta": 1000000.0,
                  "rope_scaling": {"type": "mrope", "mrope_section": [4, 6, 6]}},
  "vision_config": {"depth": 2, "embed_dim": 64, "hidden_size": 128, "hidden_act": "quick_gelu", "mlp_ratio": 4,
                    "num_heads": 4, "in_channels": 3, "patch_size": 14, "spatial_merge_size": 2,
                    "temporal_patch_size": 2},
  "image_token_id": 505, "video_token_id": 506, "vision_start_token_id": 502, "vision_end_token_id": 503})";

inline Model model_of(const Case& one) {
  Document config{.source = "bench", .root = {}};
  if (one.model.empty()) {
    config.root = Json::parse(kTinyModel);
  } else {
    const std::filesystem::path models = std::filesystem::path(WEFT_SOURCE_DIR) / "scenarios/models";
    config = must(read_document(models / (one.model + ".json")));
  }
  if (one.layers > 0) config.root["text_config"]["num_hidden_layers"] = one.layers;
  Model model = must(read_model(config, one.name));
  if (one.adapter_rank == 0) return model;
  const AdapterRule rule{
      .targets = {"q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"},
      .rank = one.adapter_rank,
      .alpha = static_cast<double>(2 * one.adapter_rank),
  };
  return must(with_adapters(model, {rule}, "bench"));
}

inline Plan plan_of(const Model& model, const Case& one) {
  Plan plan;
  plan.model = model;
  plan.cluster.nodes = 1;
  plan.cluster.devices_per_node = 1;
  plan.world_size = 1;
  plan.batches = 0;
  plan.workload.precision = Precision::kBf16;
  plan.workload.global_batch_samples = one.samples;
  plan.schedule = {.name = "1f1b", .mbs = one.samples, .microbatches = 1};
  plan.precision = {.compute = Precision::kBf16, .master = one.states, .reduce = one.states};
  for (const Module& module : model.modules) {
    const bool is_llm = module.kind == ModuleKind::kLlm;
    const size_t layers = module.layers.size();
    plan.modules.push_back({.kind = module.kind,
                            .placement = is_llm ? ModulePlacement::kBase : ModulePlacement::kInline,
                            .ranks = {0},
                            .axis_order = default_axis_order(),
                            .layers = {{static_cast<int64_t>(layers)}},
                            .recompute = {{{}}}});
    if (is_llm) plan.modules.back().recompute_logits = one.recomputes_logits;
    if (one.recomputes)
      plan.modules.back().recompute = {{RecomputeCounts{.full = static_cast<int64_t>(layers), .selective = 0}}};
  }
  for (const Violation& violation : check_plan(plan)) WEFT_CHECK(false, "{}: {}", violation.field, violation.message);
  return plan;
}

inline RawInputs batch_of(const ModelNumbers& numbers, int64_t vocabulary, const Case& one) {
  RawInputs raw;
  const MediaTokens& special = numbers.media.tokens;
  std::vector<int64_t> ids, targets;
  uint64_t state = 1;
  const auto next = [&] {
    return static_cast<int64_t>((state = state * 6364136223846793005u + 1442695040888963407u) >> 33) %
           (vocabulary * 9 / 10);
  };
  for (int64_t place = 0; place < one.samples; ++place) {
    const auto begin = std::ssize(ids);
    state = static_cast<uint64_t>(one.is_reversed ? one.samples - 1 - place : place) + 1;
    for (int i = 0; i < 10; ++i) ids.push_back(next());
    ids.push_back(special.vision_start);
    ids.insert(ids.end(), static_cast<size_t>(one.image_rows()), special.image);
    ids.push_back(special.vision_end);
    while (std::ssize(ids) - begin < one.tokens) ids.push_back(next());
    raw.image_grids.push_back({1, one.side, one.side});
    raw.lengths.push_back(one.tokens);
    targets.insert(targets.end(), ids.begin() + begin + 1, ids.end());
    targets.push_back(-100);
  }
  raw.input_ids = at::tensor(ids, at::kLong);
  raw.targets = at::tensor(targets, at::kLong);
  const at::Tensor pixels = at::randn({one.samples, one.side * one.side, numbers.vision->patch_elements()},
                                      at::detail::createCPUGenerator(/*seed_val=*/1));
  raw.pixel_values = (one.is_reversed ? pixels.flip(0) : pixels).flatten(0, 1);
  return raw;
}

/// By name; the tiny one, without a GPU on the CPU, and some layers of a mixture of experts are run only where they are
/// asked for.
inline std::vector<Case> all_cases() {
  return {Case{"2b-bf16", "qwen2-vl-2b", 4, Precision::kBf16}, Case{"2b-fp32", "qwen2-vl-2b", 4, Precision::kFp32},
          Case{"7b-bf16", "qwen2-vl-7b", 2, Precision::kBf16}, Case{"tiny-bf16", "", 2, Precision::kBf16, 256, 16},
          Case{.name = "moe-bf16", .model = "qwen3-vl-30b-a3b", .samples = 2, .layers = 6}};
}
inline bool is_asked_for(const Case& one) {
  return one.model.empty() || one.layers > 0;
}

inline double median(std::vector<double> numbers) {
  std::sort(numbers.begin(), numbers.end());
  return numbers[numbers.size() / 2];
}

/// A training rank and what it trains on.
class VlTraining {
 public:
  VlTraining(World& world, const Plan& plan, const Case& one, at::Device device)
      : one_(one),
        rank_(must(TrainingRank::create(world, plan, {.max_gradient_norm = 1, .seed = 1, .device = device}))) {
    take(one.tokens);
  }

  /// Every sample gets so many tokens.
  void take(int64_t tokens) {
    one_.tokens = tokens;
    const RawInputs raw = batch_of(rank_->numbers(), rank_->vocabulary(), one_);
    const Inputs inputs = must(prepare_inputs(rank_->numbers(), rank_->vocabulary(), raw)).to(rank_->options());
    batch_ = {.microbatches = {inputs}};
    num_targets_ = inputs.num_targets();
  }
  StepReport step(bool asks_device) { return rank_->step(batch_, num_targets_, 1e-5, asks_device); }
  double step_ms() {
    const double begin = now_ms();
    (void)step(/*asks_device=*/false);
    return now_ms() - begin;
  }
  const TrainingRank& rank() const { return *rank_; }

  static constexpr int kWarm = 4;  ///< steps before any that is timed

 private:
  Case one_;
  std::unique_ptr<TrainingRank> rank_;
  StepBatch batch_;
  int64_t num_targets_ = 0;
};

}  // namespace weft
