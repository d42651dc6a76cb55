// A training step of Qwen2-VL on one GPU, one rank, through the code that trains: 4 × 4,096 tokens for 2B and 2 × 4,096
// for 7B, one image of 4,096 patches a sample, labels on all tokens. Prints what bench/vl_step.py prints for Hugging
// Face's model, so that both are compared in one run.
//
//   weft_vl_step [--case 2b-bf16|2b-fp32|7b-bf16] [--steps N] [--tokens N] [--samples N] [--recompute]
//                [--lengths] [--twice] [--waits] [--losses] [--reversed]
//
// bf16: weights, gradients and Adam's states; fp32: master weights, gradients and states, computed in bf16. --lengths
// has every step of another length, and again, to compare a length's first step with its second. --twice trains twice
// from the same start in the deterministic mode and compares weights bit for bit. --waits counts in each action of a
// step how often the host waits for the GPU. --losses prints the loss of every step, --reversed takes samples in the
// other order: what that changes is what any order of summation may.
#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstring>
#include <dlfcn.h>
#include <mutex>
#include <optional>
#include <string>

#include <ATen/CPUGeneratorImpl.h>
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
#include "weft/tensor/deterministic.h"

namespace {

using namespace weft;

/// When the host waited for the GPU. Autograd has a thread of its own for each GPU.
struct Waits {
  void note() {
    const std::lock_guard lock(guard);
    times.push_back(now_ms());
  }
  std::mutex guard;
  std::vector<double> times;
};
std::atomic<Waits*> watched;

/// Notes a wait and has CUDA's own function do it: calls of libraries that are loaded later come here first.
template <typename... Args>
int wait_as(const char* name, Args... args) {
  if (Waits* waits = watched.load()) waits->note();
  using Function = int (*)(Args...);
  const auto own = reinterpret_cast<Function>(dlsym(RTLD_NEXT, name));
  WEFT_CHECK(own != nullptr, "CUDA has no {}", name);
  return own(args...);
}

}  // namespace

extern "C" __attribute__((visibility("default"))) int cudaStreamSynchronize(void* stream) {
  return wait_as("cudaStreamSynchronize", stream);
}
extern "C" __attribute__((visibility("default"))) int cudaDeviceSynchronize() {
  return wait_as("cudaDeviceSynchronize");
}
extern "C" __attribute__((visibility("default"))) int cudaEventSynchronize(void* event) {
  return wait_as("cudaEventSynchronize", event);
}
extern "C" __attribute__((visibility("default"))) int cudaMemcpy(void* to, const void* from, size_t bytes, int kind) {
  return wait_as("cudaMemcpy", to, from, bytes, kind);
}

namespace {

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
  enum class What : uint8_t { kSteps, kLengths, kTwice, kWaits, kLosses } what = What::kSteps;
  bool is_reversed = false;  ///< samples come in the other order, and sums with them
};

const at::Device kDevice(at::kCUDA, 0);
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
  for (int64_t place = 0; place < one.samples; ++place) {
    const auto begin = std::ssize(ids);
    state = static_cast<uint64_t>(one.is_reversed ? one.samples - 1 - place : place) + 1;
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
  const at::Tensor pixels = at::randn({one.samples, kSide * kSide, numbers.vision->patch_elements()},
                                      at::detail::createCPUGenerator(/*seed_val=*/1));
  raw.pixel_values = (one.is_reversed ? pixels.flip(0) : pixels).flatten(0, 1);
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

/// A training rank on the GPU and what it trains on.
class VlTraining {
 public:
  VlTraining(World& world, const Plan& plan, const Case& one)
      : one_(one),
        rank_(must(TrainingRank::create(world, plan, {.max_gradient_norm = 1, .seed = 1, .device = kDevice}))) {
    take(one.tokens);
  }

  /// Every sample gets so many tokens.
  void take(int64_t tokens) {
    one_.tokens = tokens;
    const RawInputs raw = batch_of(rank_->numbers(), one_);
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

 private:
  Case one_;
  std::unique_ptr<TrainingRank> rank_;
  StepBatch batch_;
  int64_t num_targets_ = 0;
};

constexpr int kWarm = 4;

void time_steps(VlTraining training, const Model& model, const Case& one, int steps) {
  auto* allocator = c10::getDeviceAllocator(at::kCUDA);
  std::vector<double> forwards, both, all;
  StepReport report;
  for (int step = 0; step < kWarm + steps; ++step) {
    if (step == kWarm) allocator->resetPeakStats(0);
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
  const double peak = static_cast<double>(allocator->getDeviceStats(0).allocated_bytes[0].peak) / (1 << 30);
  const double step_ms = median(all), both_ms = median(both), flops = model_flops(model, training.rank(), one);
  fmt::print(
      "weft {}{}: fwdbwd {:.1f} ms, of it fwd {:.1f} ms, rest of the step {:.1f} ms, tok/s {:.0f}, model TFLOP/s "
      "{:.0f} "
      "(fwdbwd only {:.0f}), peak {:.1f} GiB, loss {:.3f}\n",
      one.name, one.recomputes ? " recomputed" : "", both_ms, median(forwards), step_ms - both_ms,
      static_cast<double>(one.samples * one.tokens) / step_ms * 1e3, flops / step_ms / 1e9, flops / both_ms / 1e9, peak,
      report.loss);
}

/// Steps of lengths that were not seen before, beside the same lengths again.
void time_lengths(VlTraining training, const Case& one, int steps) {
  for (int step = 0; step < kWarm; ++step) (void)training.step_ms();
  constexpr int kTimes = 5;
  std::vector<std::vector<double>> by_time(kTimes);
  std::vector<double> ratios;
  for (int i = 1; i <= steps; ++i) {
    training.take(one.tokens - 37 * i);
    std::vector<double> times;
    for (int time = 0; time < kTimes; ++time)
      by_time[static_cast<size_t>(time)].push_back(times.emplace_back(training.step_ms()));
    ratios.push_back(times.front() / median({times.begin() + 1, times.end()}));
  }
  std::string text;
  for (const std::vector<double>& times : by_time) text += fmt::format(" {:.1f}", median(times));
  fmt::print(
      "weft {}: steps of {} lengths, median of their first time, second and so on:{} ms; first over the rest {:.3f} "
      "(median), {:.3f} (most)\n",
      one.name, steps, text, median(ratios), *std::max_element(ratios.begin(), ratios.end()));
}

std::vector<at::Tensor> weights_of(const TrainingRank& rank) {
  std::vector<at::Tensor> weights;
  for (const ParameterPtr& parameter : rank.parameters()) weights.push_back(parameter->value.detach().cpu());
  return weights;
}

void show_losses(VlTraining training, const Case& one, int steps) {
  std::string text;
  for (int step = 0; step < steps; ++step) text += fmt::format(" {:.7f}", training.step(/*asks_device=*/false).loss);
  fmt::print("weft {} losses{}:{}\n", one.name, one.is_reversed ? ", samples reversed" : "", text);
}

/// How often the host waits for the GPU in each action of a step.
void show_waits(VlTraining training, const Case& one) {
  for (int step = 0; step < kWarm; ++step) (void)training.step_ms();
  Waits found;
  watched.store(&found);
  const StepReport report = training.step(/*asks_device=*/false);
  watched.store(nullptr);
  std::string text;
  for (const TimelineEvent& event : report.events) {
    const auto waits = std::count_if(found.times.begin(), found.times.end(),
                                     [&](double time) { return time >= event.start_ms && time <= event.end_ms; });
    text += fmt::format(" {} {}", to_text(event.action), waits);
  }
  fmt::print("weft {}: the host waits for the GPU {} times in a step:{}\n", one.name, found.times.size(), text);
}

void run(const Case& one, int steps, bool has_gpu) {
  const std::filesystem::path models = std::filesystem::path(WEFT_SOURCE_DIR) / "scenarios/models";
  const Model model = must(read_model_file(models / (one.model + ".json")));
  const Plan plan = plan_of(model, one);
  for (const Violation& violation : check_plan(plan)) WEFT_CHECK(false, "{}: {}", violation.field, violation.message);
  if (!has_gpu) return std::puts("no GPU here"), void();
  const auto error = run_ranks({.size = 1}, [&](World& world) {
    switch (one.what) {
      case Case::What::kSteps:
        return time_steps({world, plan, one}, model, one, steps);
      case Case::What::kLengths:
        return time_lengths({world, plan, one}, one, steps);
      case Case::What::kWaits:
        return show_waits({world, plan, one}, one);
      case Case::What::kLosses:
        return show_losses({world, plan, one}, one, steps);
      case Case::What::kTwice:
        break;
    }
    set_deterministic(true);
    std::vector<std::vector<at::Tensor>> weights;
    std::vector<double> times;
    for (int i = 0; i < 2; ++i) {
      VlTraining training(world, plan, one);
      for (int step = 0; step < kWarm + steps; ++step) times.push_back(training.step_ms());
      weights.push_back(weights_of(training.rank()));
    }
    size_t same = 0;
    for (size_t i = 0; i < weights[0].size(); ++i) same += weights[0][i].equal(weights[1][i]) ? 1 : 0;
    fmt::print("weft {} deterministic: {} of {} weights have the same bits after {} steps; a step {:.1f} ms\n",
               one.name, same, weights[0].size(), kWarm + steps, median(times));
  });
  std::fflush(stdout);
  WEFT_CHECK(!error, "{}", error->message());
  c10::getDeviceAllocator(at::kCUDA)->emptyCache();
}

}  // namespace

int main(int argc, char** argv) {
  std::optional<std::string> only;
  std::optional<int64_t> tokens, samples;
  int steps = 8;
  bool recomputes = false, is_reversed = false;
  Case::What what = Case::What::kSteps;
  for (int i = 1; i < argc; ++i) {
    const auto is = [&](const char* name) { return std::strcmp(argv[i], name) == 0; };
    if (is("--recompute")) {
      recomputes = true;
    } else if (is("--lengths")) {
      what = Case::What::kLengths;
    } else if (is("--twice")) {
      what = Case::What::kTwice;
    } else if (is("--waits")) {
      what = Case::What::kWaits;
    } else if (is("--losses")) {
      what = Case::What::kLosses;
    } else if (is("--reversed")) {
      is_reversed = true;
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
    one.what = what;
    one.is_reversed = is_reversed;
    run(one, steps, has_gpu);
    has_run = true;
  }
  if (!has_run) return fmt::print(stderr, "weft_vl_step: no case '{}'\n", *only), 2;
  return 0;
}
