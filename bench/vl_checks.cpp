// Training steps of Qwen2-VL on one GPU, looked at otherwise than by their time (bench/vl_step.cpp has that):
//
//   weft_vl_checks lengths|twice|waits|losses [--case NAME] [--steps N] [--tokens N] [--reversed]
//
// lengths: every length is seen several times, to compare its first step with the others. twice: trains twice from the
// same start in the deterministic mode and compares weights bit for bit. waits: counts in each action of a step how
// often the host waits for the GPU. losses: of every step; --reversed takes samples in the other order, and what that
// changes is what any order of summation may.
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <mutex>

#include <fmt/format.h>

#include "bench/vl_training.h"
#include "weft/comm/run_ranks.h"
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

const at::Device kDevice(at::kCUDA, 0);

/// Steps of lengths that were not seen before, beside the same lengths again.
void time_lengths(VlTraining training, const Case& one, int steps) {
  for (int step = 0; step < VlTraining::kWarm; ++step) (void)training.step_ms();
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
  for (int step = 0; step < VlTraining::kWarm; ++step) (void)training.step_ms();
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

void train_twice(World& world, const Plan& plan, const Case& one, int steps) {
  set_deterministic(true);
  std::vector<std::vector<at::Tensor>> weights;
  std::vector<double> times;
  for (int i = 0; i < 2; ++i) {
    VlTraining training(world, plan, one, kDevice);
    for (int step = 0; step < steps; ++step) times.push_back(training.step_ms());
    weights.push_back(weights_of(training.rank()));
  }
  size_t same = 0;
  for (size_t i = 0; i < weights[0].size(); ++i) same += weights[0][i].equal(weights[1][i]) ? 1 : 0;
  fmt::print("weft {} deterministic: {} of {} weights have the same bits after {} steps; a step {:.1f} ms\n", one.name,
             same, weights[0].size(), steps, median(times));
}

}  // namespace

int main(int argc, char** argv) {
  const auto usage = [] {
    return std::fputs("weft_vl_checks lengths|twice|waits|losses [--case NAME] [--steps N] [--tokens N] [--reversed]\n",
                      stderr),
           2;
  };
  if (argc < 2) return usage();
  const std::string what = argv[1];
  std::string name = "2b-bf16";
  int64_t tokens = 0;
  int steps = 8;
  bool is_reversed = false;
  for (int i = 2; i < argc; ++i) {
    const auto is = [&](const char* option) { return std::strcmp(argv[i], option) == 0; };
    if (is("--reversed")) {
      is_reversed = true;
    } else if (i + 1 < argc && is("--case")) {
      name = argv[++i];
    } else if (i + 1 < argc && is("--steps")) {
      steps = std::max(1, std::atoi(argv[++i]));
    } else if (i + 1 < argc && is("--tokens")) {
      tokens = std::atoll(argv[++i]);
    } else {
      return usage();
    }
  }
  const std::vector<Case> cases = all_cases();
  const auto found = std::find_if(cases.begin(), cases.end(), [&](const Case& each) { return each.name == name; });
  if (found == cases.end()) return fmt::print(stderr, "weft_vl_checks: no case '{}'\n", name), 2;
  Case one = *found;
  if (tokens > 0) one.tokens = tokens;
  one.is_reversed = is_reversed;
  if (!must(load_cuda_library())) return std::puts("no GPU here"), 0;
  const Plan plan = plan_of(model_of(one), one);
  bool is_known = true;
  const auto error = run_ranks({.size = 1}, [&](World& world) {
    if (what == "lengths") return time_lengths({world, plan, one, kDevice}, one, steps);
    if (what == "twice") return train_twice(world, plan, one, steps);
    if (what == "waits") return show_waits({world, plan, one, kDevice}, one);
    if (what == "losses") return show_losses({world, plan, one, kDevice}, one, steps);
    is_known = false;
  });
  WEFT_CHECK(!error, "{}", error->message());
  return is_known ? 0 : usage();
}
