// Training steps of one rank on a GPU: bf16 compute, fp32 master weights and gradients, AdamW. Prints the median time
// of a step, and the first losses beside those of the same steps on the CPU in fp32.
#include <algorithm>
#include <chrono>
#include <cstdio>

#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/tensor.h>
#include <fmt/format.h>

#include "bench/must.h"
#include "weft/base/document.h"
#include "weft/comm/run_ranks.h"
#include "weft/pipeline/training_rank.h"
#include "weft/spec/model_reader.h"
#include "weft/tensor/cuda_library.h"

namespace {

using namespace weft;

constexpr const char* kLlama = R"({"model_type": "llama", "hidden_size": 1024, "intermediate_size": 2816,
  "num_hidden_layers": 12, "num_attention_heads": 16, "num_key_value_heads": 4, "vocab_size": 32000,
  "tie_word_embeddings": false, "max_position_embeddings": 8192})";
constexpr const char* kQwenVl = R"({"model_type": "qwen2_vl", "hidden_size": 1024, "intermediate_size": 2816,
  "num_hidden_layers": 12, "num_attention_heads": 16, "num_key_value_heads": 4, "vocab_size": 32000,
  "tie_word_embeddings": true, "max_position_embeddings": 8192, "image_token_id": 31990, "video_token_id": 31991,
  "vision_start_token_id": 31992, "vision_end_token_id": 31993,
  "rope_scaling": {"type": "mrope", "mrope_section": [8, 12, 12]},
  "vision_config": {"depth": 12, "embed_dim": 640, "hidden_size": 1024, "num_heads": 10, "mlp_ratio": 4, "patch_size": 14}})";

RawInputs batch_of(const ModelNumbers& numbers, bool has_images) {
  RawInputs raw;
  std::vector<int64_t> ids;
  uint64_t state = 1;
  const auto next = [&] {
    return static_cast<int64_t>((state = state * 6364136223846793005u + 1442695040888963407u) >> 33) % 31000;
  };
  for (int sample = 0; sample < 4; ++sample) {
    const size_t begin = ids.size();
    if (has_images) {
      const Grid grid{1, 16 + 8 * sample, 24};
      raw.image_grids.push_back(grid);
      ids.push_back(31992);
      ids.insert(ids.end(), static_cast<size_t>(num_merged_tokens(grid, 2)), 31990);
      ids.push_back(31993);
    }
    for (int i = 0; i < 1024; ++i) ids.push_back(next());
    raw.lengths.push_back(static_cast<int64_t>(ids.size() - begin));
  }
  std::vector<int64_t> targets(ids.begin() + 1, ids.end());
  targets.push_back(-100);
  for (int64_t& id : targets) id = id >= 31990 ? -100 : id;
  raw.input_ids = at::tensor(ids, at::kLong);
  raw.targets = at::tensor(targets, at::kLong);
  if (has_images) {
    int64_t patches = 0;
    for (const Grid& grid : raw.image_grids) patches += num_patches(grid);
    raw.pixel_values = at::randn({patches, numbers.vision->patch_elements()});
  }
  return raw;
}

struct Run {
  std::vector<double> losses;
  std::vector<double> milliseconds;
};

Run train(const Model& model, const RawInputs& raw, at::Device device, Precision precision, int steps) {
  Plan plan;
  plan.model = model;
  plan.cluster.nodes = 1;
  plan.cluster.devices_per_node = 1;
  plan.world_size = 1;
  plan.batches = 0;
  plan.workload.precision = precision;
  plan.workload.global_batch_samples = 4;
  plan.schedule = {.name = "1f1b", .mbs = 4, .microbatches = 1};
  plan.precision = {.compute = precision, .master = Precision::kFp32, .reduce = Precision::kFp32};
  for (const Module& module : model.modules) {
    const bool is_llm = module.kind == ModuleKind::kLlm;
    const auto layers = static_cast<int64_t>(module.layers.size());
    plan.modules.push_back({.kind = module.kind,
                            .placement = is_llm ? ModulePlacement::kBase : ModulePlacement::kInline,
                            .ranks = {0},
                            .axis_order = default_axis_order(),
                            .layers = {{layers}},
                            .recompute = {{{}}}});
  }
  Run result;
  const auto error = run_ranks({.size = 1}, [&](World& world) {
    auto rank = must(TrainingRank::create(world, plan, {.max_gradient_norm = 1, .seed = 1, .device = device}));
    const Inputs inputs = must(prepare_inputs(rank->numbers(), rank->vocabulary(), raw)).to(rank->options());
    for (int step = 0; step < steps; ++step) {
      const auto start = std::chrono::steady_clock::now();
      const StepReport report = rank->step({inputs}, inputs.num_targets(), 1e-3);
      result.losses.push_back(report.loss);
      result.milliseconds.push_back(
          std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count());
    }
  });
  WEFT_CHECK(!error, "{}", error->message());
  return result;
}

}  // namespace

int main() {
  if (!must(load_cuda_library())) return std::puts("no GPU here"), 0;
  for (const bool has_images : {false, true}) {
    const Document document{.source = "bench", .root = Json::parse(has_images ? kQwenVl : kLlama)};
    const Model model = must(read_model(document, has_images ? "small Qwen2-VL" : "small Llama"));
    const ModelNumbers numbers = must(numbers_to_run(model));
    const RawInputs raw = batch_of(numbers, has_images);
    Run gpu = train(model, raw, at::Device(at::kCUDA, 0), Precision::kBf16, 15);
    const Run exact = train(model, raw, at::Device(at::kCUDA, 0), Precision::kFp32, 3);
    const Run cpu = train(model, raw, at::kCPU, Precision::kFp32, 3);
    fmt::print("{}: {} tokens\n", model.name, raw.input_ids.size(0));
    for (size_t step = 0; step < 3; ++step) {
      fmt::print("  step {}: loss {:.5f} on the GPU in bf16, {:.5f} in fp32, {:.5f} on the CPU in fp32\n", step,
                 gpu.losses[step], exact.losses[step], cpu.losses[step]);
    }
    std::sort(gpu.milliseconds.begin(), gpu.milliseconds.end());
    fmt::print("  a step takes {:.2f} ms (median), CPU {:.0f} ms\n", gpu.milliseconds[gpu.milliseconds.size() / 2],
               cpu.milliseconds.back());
  }
  return 0;
}
