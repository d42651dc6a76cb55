// A training step of Qwen2-VL on one GPU, one rank, through the code that trains: 4 × 4,096 tokens for 2B and 2 × 4,096
// for 7B, one image of 4,096 patches a sample, labels on all tokens. Prints what bench/vl_step.py prints for Hugging
// Face's model, so that both are compared in one run.
//
//   weft_vl_step [--case 2b-bf16|2b-fp32|7b-bf16] [--steps N] [--tokens N] [--samples N] [--recompute]
//
// bf16: weights, gradients and Adam's states; fp32: master weights, gradients and states, computed in bf16.
#include <algorithm>
#include <cstdio>
#include <cstring>
#include <optional>
#include <string>

#include <ATen/ops/randn.h>
#include <ATen/ops/tensor.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <fmt/format.h>

#include "weft/base/clock.h"
#include "weft/base/document.h"
#include "weft/comm/run_ranks.h"
#include "weft/meaning/check.h"
#include "weft/pipeline/training_rank.h"
#include "weft/spec/model_reader.h"
#include "weft/tensor/cuda_library.h"

namespace {

using namespace weft;

template <typename T>
T must(Result<T> result) {
  WEFT_CHECK(result.ok(), "{}", result.error().message());
  return *std::move(result);
}

struct Case {
  std::string name;
  std::string model;
  int64_t samples = 1;
  Precision states = Precision::kBf16;
  int64_t tokens = 4096;
  bool recomputes = false;
};

constexpr int64_t kSide = 64;  ///< of an image, in patches

Plan plan_of(const Model& model, const Case& one) {
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
    if (one.recomputes)
      plan.modules.back().recompute = {{RecomputeCounts{.full = static_cast<int64_t>(layers), .selective = 0}}};
  }
  return plan;
}

RawInputs batch_of(const ModelNumbers& numbers, const Case& one) {
  RawInputs raw;
  const MediaTokens& special = numbers.media.tokens;
  std::vector<int64_t> ids, targets;
  uint64_t state = 1;
  const auto next = [&] {
    return static_cast<int64_t>((state = state * 6364136223846793005u + 1442695040888963407u) >> 33) % 150'000;
  };
  for (int64_t sample = 0; sample < one.samples; ++sample) {
    const auto begin = std::ssize(ids);
    for (int i = 0; i < 10; ++i) ids.push_back(next());
    ids.push_back(special.vision_start);
    ids.insert(ids.end(), static_cast<size_t>(kSide * kSide / 4), special.image);
    ids.push_back(special.vision_end);
    while (std::ssize(ids) - begin < one.tokens) ids.push_back(next());
    raw.image_grids.push_back({1, kSide, kSide});
    raw.lengths.push_back(one.tokens);
    targets.insert(targets.end(), ids.begin() + begin + 1, ids.end());
    targets.push_back(-100);
  }
  raw.input_ids = at::tensor(ids, at::kLong);
  raw.targets = at::tensor(targets, at::kLong);
  raw.pixel_values = at::randn({one.samples * kSide * kSide, numbers.vision->patch_elements()});
  return raw;
}

/// By the formula of the baseline: six a parameter and token, and attention.
double model_flops(const Model& model, const TrainingRank& rank, const Case& one) {
  double text = 0, vision = 0;
  int64_t width = 0, layers = 0, vision_width = 0, vision_layers = 0;
  for (const Module& module : model.modules) {
    (module.kind == ModuleKind::kLlm ? width : vision_width) = module.width;
    (module.kind == ModuleKind::kLlm ? layers : vision_layers) = std::ssize(module.layers);
  }
  bool has_head = false;
  double embedding = 0;
  for (const ParameterPtr& parameter : rank.parameters()) {
    const std::string name = parameter->name();
    const auto count = static_cast<double>(parameter->value.numel());
    (name.starts_with("visual") ? vision : text) += count;
    if (name.find("embed_tokens") != std::string::npos) embedding = count;
    has_head |= name.find("lm_head") != std::string::npos;
  }
  if (has_head) text -= embedding;  // a tied table counts once, as the head
  const auto tokens = static_cast<double>(one.samples * one.tokens);
  const auto patches = static_cast<double>(one.samples * kSide * kSide);
  return 6 * text * tokens + 6 * static_cast<double>(layers * width * one.tokens) * tokens + 6 * vision * patches +
         12 * static_cast<double>(vision_layers * vision_width * kSide * kSide) * patches;
}

double median(std::vector<double> numbers) {
  std::sort(numbers.begin(), numbers.end());
  return numbers[numbers.size() / 2];
}

void run(const Case& one, int steps, bool has_gpu) {
  const std::filesystem::path models = std::filesystem::path(WEFT_SOURCE_DIR) / "scenarios/models";
  const Model model = must(read_model_file(models / (one.model + ".json")));
  const Plan plan = plan_of(model, one);
  for (const Violation& violation : check_plan(plan)) WEFT_CHECK(false, "{}: {}", violation.field, violation.message);
  if (!has_gpu) return std::puts("no GPU here"), void();
  const at::Device device(at::kCUDA, 0);
  auto* allocator = c10::getDeviceAllocator(at::kCUDA);
  const auto error = run_ranks({.size = 1}, [&](World& world) {
    auto rank = must(TrainingRank::create(world, plan, {.max_gradient_norm = 1, .seed = 1, .device = device}));
    const Inputs inputs =
        must(prepare_inputs(rank->numbers(), rank->vocabulary(), batch_of(rank->numbers(), one))).to(rank->options());
    const StepBatch batch{.microbatches = {inputs}};
    std::vector<double> both, all;
    StepReport report;
    constexpr int kWarm = 4;
    for (int step = 0; step < kWarm + steps; ++step) {
      if (step == kWarm) allocator->resetPeakStats(0);
      const double begin = now_ms();
      report = rank->step(batch, inputs.num_targets(), 1e-5, /*asks_device=*/true);
      if (step < kWarm) continue;
      all.push_back(now_ms() - begin);
      double first = 1e300, last = 0;
      for (const TimelineEvent& event : report.events) {
        if (event.stream != Stream::kCompute || event.action.kind == ActionKind::kUpdate) continue;
        first = std::min(first, event.start_ms);
        last = std::max(last, event.end_ms);
      }
      both.push_back(last - first);
    }
    const double peak = static_cast<double>(allocator->getDeviceStats(0).allocated_bytes[0].peak) / (1 << 30);
    const double step_ms = median(all), both_ms = median(both), flops = model_flops(model, *rank, one);
    fmt::print(
        "weft {}{}: fwdbwd {:.1f} ms, rest of the step {:.1f} ms, tok/s {:.0f}, model TFLOP/s {:.0f} (fwdbwd only "
        "{:.0f}), "
        "peak {:.1f} GiB, loss {:.3f}\n",
        one.name, one.recomputes ? " recomputed" : "", both_ms, step_ms - both_ms,
        static_cast<double>(one.samples * one.tokens) / step_ms * 1e3, flops / step_ms / 1e9, flops / both_ms / 1e9,
        peak, report.loss);
    std::fflush(stdout);
  });
  WEFT_CHECK(!error, "{}", error->message());
  allocator->emptyCache();
}

}  // namespace

int main(int argc, char** argv) {
  std::optional<std::string> only;
  std::optional<int64_t> tokens, samples;
  int steps = 8;
  bool recomputes = false;
  for (int i = 1; i < argc; ++i) {
    const auto is = [&](const char* name) { return std::strcmp(argv[i], name) == 0; };
    if (is("--recompute")) {
      recomputes = true;
    } else if (i + 1 < argc && is("--case")) {
      only = argv[++i];
    } else if (i + 1 < argc && is("--steps")) {
      steps = std::max(1, std::atoi(argv[++i]));
    } else if (i + 1 < argc && is("--tokens")) {
      tokens = std::atoll(argv[++i]);
    } else if (i + 1 < argc && is("--samples")) {
      samples = std::atoll(argv[++i]);
    } else {
      return fmt::print(stderr, "weft_vl_step: unknown argument '{}'\n", argv[i]), 2;
    }
  }
  const bool has_gpu = must(load_cuda_library());
  bool has_run = false;
  for (Case one :
       {Case{"2b-bf16", "qwen2-vl-2b", 4, Precision::kBf16}, Case{"2b-fp32", "qwen2-vl-2b", 4, Precision::kFp32},
        Case{"7b-bf16", "qwen2-vl-7b", 2, Precision::kBf16}}) {
    if (only && *only != one.name) continue;
    if (tokens) one.tokens = *tokens;
    if (samples) one.samples = *samples;
    one.recomputes = recomputes;
    run(one, steps, has_gpu);
    has_run = true;
  }
  if (!has_run) return fmt::print(stderr, "weft_vl_step: no case '{}'\n", *only), 2;
  return 0;
}
