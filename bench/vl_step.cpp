// A training step of Qwen2-VL on one GPU, one rank, through the code that trains: 4 × 4,096 tokens for 2B and 2 × 4,096
// for 7B, one image of 4,096 patches a sample, labels on all tokens. Prints what bench/vl_step.py prints for Hugging
// Face's model, so that both are compared in one run.
//
//   weft_vl_step [--case 2b-bf16|2b-fp32|7b-bf16|moe-bf16|tiny-bf16] [--steps N] [--tokens N] [--samples N]
//   [--recompute]
//                [--recompute-logits] [--adapters RANK]
//
// bf16: weights, gradients and Adam's states; fp32: master weights, gradients and states, computed in bf16. Six layers
// of Qwen3-VL-30B-A3B and a tiny model, without a GPU on the CPU, are run only where they are asked for. With adapters
// all linear layers of the llm have one, of type bf16 as the rest, and nothing else is trained; the peak that is
// predicted for the plan stands beside the one that was measured.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <string>

#include <c10/core/CachingDeviceAllocator.h>
#include <fmt/format.h>

#include "bench/vl_training.h"
#include "tests/support/meaning/uniform_load.h"
#include "weft/comm/run_ranks.h"
#include "weft/simulate/step_memory.h"
#include "weft/tensor/cuda_library.h"
#include "weft/tensor/memory_count.h"

namespace {

using namespace weft;

double share_of_experts(const Model& model) {
  const Block& layer = model.find(ModuleKind::kLlm)->distinct_layers.front();
  const Op& product = op_named(layer, "mlp.gate_up");
  return product.rows.value() / static_cast<double>(std::get<Matmul>(product.shape).experts);
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
    auto count = static_cast<double>(parameter->value.numel());
    if (name.find(".experts.") != std::string::npos) count *= share_of_experts(model);  // that a token chooses
    (name.starts_with("visual") ? vision : text) += count;
    if (name.find("embed_tokens") != std::string::npos) embedding = count;
    has_head |= name.find("lm_head") != std::string::npos;
  }
  if (has_head) text -= embedding;  // a tied table counts once, as the head
  const auto tokens = static_cast<double>(one.samples * one.tokens);
  const auto patches = static_cast<double>(one.samples * one.side * one.side);
  return 6 * text * tokens + 6 * static_cast<double>(layers * width * one.tokens) * tokens + 6 * vision * patches +
         12 * static_cast<double>(vision_layers * vision_width * one.side * one.side) * patches;
}

constexpr double kGib = 1 << 30;

double predicted_gib(Plan plan, const Case& one, bool has_gpu) {
  const UniformSample sample{.text = one.tokens - one.image_rows(), .patches = one.side * one.side};
  sample.write_to(plan.workload);
  const StepMemory memory = must(step_memory(plan, uniform_load(plan, sample), /*rank=*/0,
                                             has_gpu ? WalkedDevice::kGpu : WalkedDevice::kProcessor));
  // What a processor's kernels pack in passing is not counted where it is measured.
  return static_cast<double>(has_gpu ? memory.peak_bytes() : memory.settled_peak_bytes()) / kGib;
}

/// The most that was allocated since it was forgotten: of the GPU, or of this thread's tensors on the CPU.
class PeakMemory {
 public:
  explicit PeakMemory(bool has_gpu) : gpu_(has_gpu ? c10::getDeviceAllocator(at::kCUDA) : nullptr) {}
  void forget() {
    if (gpu_ != nullptr) gpu_->resetPeakStats(0);
    cpu_->forget_peak();
  }
  double gib() const {
    const int64_t bytes = gpu_ != nullptr ? gpu_->getDeviceStats(0).allocated_bytes[0].peak : cpu_->peak_bytes();
    return static_cast<double>(bytes) / kGib;
  }

 private:
  c10::DeviceAllocator* gpu_;
  std::shared_ptr<MemoryCount> cpu_ = std::make_shared<MemoryCount>();
  CountedThread counted_{cpu_};
};

void run(const Case& one, int steps, bool has_gpu) {
  const Model model = model_of(one);
  const Plan plan = plan_of(model, one);
  if (!has_gpu && !one.model.empty()) return std::puts("no GPU here"), void();
  const at::Device device = has_gpu ? at::Device(at::kCUDA, 0) : at::Device(at::kCPU);
  const auto error = run_ranks({.size = 1}, [&](World& world) {
    PeakMemory memory(has_gpu);
    VlTraining training(world, plan, one, device);
    std::vector<double> forwards, both, all;
    StepReport report;
    double start_gib = 0;
    constexpr int kWarm = VlTraining::kWarm;
    for (int step = 0; step < kWarm + steps; ++step) {
      if (step == kWarm) start_gib = memory.gib(), memory.forget();
      const double begin = now_ms();
      report = training.step(/*asks_device=*/true);
      if (step < kWarm) continue;
      all.push_back(now_ms() - begin);
      double first = 1e300, last = 0, forward = 0;
      for (const TimelineEvent& event : report.events) {
        if (event.stream != Stream::kCompute || event.action.kind == ActionKind::kUpdate) continue;
        first = std::min(first, event.start_ms);
        last = std::max(last, event.end_ms);
        if (event.action.kind == ActionKind::kForward) forward += event.end_ms - event.start_ms;
      }
      both.push_back(last - first);
      forwards.push_back(forward);
    }
    const double step_ms = median(all), both_ms = median(both), peak = memory.gib();
    std::string rates = fmt::format("tok/s {:.0f}", static_cast<double>(one.samples * one.tokens) / step_ms * 1e3);
    if (one.adapter_rank == 0) {
      const double flops = model_flops(model, training.rank(), one);
      rates += fmt::format(", model TFLOP/s {:.0f} (fwdbwd only {:.0f})", flops / step_ms / 1e9, flops / both_ms / 1e9);
    }
    const double predicted = predicted_gib(plan, one, has_gpu), most = std::max(start_gib, peak);
    const std::string prediction = fmt::format(", with its start {:.4g} GiB, predicted {:.4g} GiB ({:+.1f} %)", most,
                                               predicted, (predicted / most - 1) * 100);
    fmt::print(
        "weft {}{}{}: fwdbwd {:.1f} ms, of it fwd {:.1f} ms, rest of the step {:.1f} ms, {}, peak {:.4g} GiB{}, loss "
        "{:.3f}\n",
        one.name,
        one.recomputes          ? " recomputed"
        : one.recomputes_logits ? " logits recomputed"
                                : "",
        one.adapter_rank > 0 ? fmt::format(" lora {}", one.adapter_rank) : "", both_ms, median(forwards),
        step_ms - both_ms, rates, peak, prediction, report.loss);
    std::fflush(stdout);
  });
  WEFT_CHECK(!error, "{}", error->message());
  if (has_gpu) c10::getDeviceAllocator(at::kCUDA)->emptyCache();
}

}  // namespace

int main(int argc, char** argv) {
  std::optional<std::string> only;
  std::optional<int64_t> tokens, samples;
  int steps = 8;
  int64_t adapter_rank = 0;
  bool recomputes = false, recomputes_logits = false;
  for (int i = 1; i < argc; ++i) {
    const auto is = [&](const char* name) { return std::strcmp(argv[i], name) == 0; };
    if (is("--recompute")) {
      recomputes = true;
    } else if (is("--recompute-logits")) {
      recomputes_logits = true;
    } else if (i + 1 < argc && is("--case")) {
      only = argv[++i];
    } else if (i + 1 < argc && is("--steps")) {
      steps = std::max(1, std::atoi(argv[++i]));
    } else if (i + 1 < argc && is("--tokens")) {
      tokens = std::atoll(argv[++i]);
    } else if (i + 1 < argc && is("--samples")) {
      samples = std::atoll(argv[++i]);
    } else if (i + 1 < argc && is("--adapters")) {
      adapter_rank = std::atoll(argv[++i]);
    } else {
      return fmt::print(stderr, "weft_vl_step: unknown argument '{}'\n", argv[i]), 2;
    }
  }
  const bool has_gpu = must(load_cuda_library());
  bool has_run = false;
  for (Case one : all_cases()) {
    if (only ? *only != one.name : is_asked_for(one)) continue;
    if (tokens) one.tokens = *tokens;
    if (samples) one.samples = *samples;
    one.recomputes = recomputes;
    one.recomputes_logits = recomputes_logits;
    one.adapter_rank = adapter_rank;
    run(one, steps, has_gpu);
    has_run = true;
  }
  if (!has_run) return fmt::print(stderr, "weft_vl_step: no case '{}'\n", *only), 2;
  return 0;
}
