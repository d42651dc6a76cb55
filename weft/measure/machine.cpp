#include "weft/measure/machine.h"

#include <algorithm>
#include <fstream>
#include <mutex>

#include <ATen/ops/empty.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <fmt/format.h>

#include "weft/base/clock.h"
#include "weft/base/counted.h"
#include "weft/comm/cuda/cuda_device.h"
#include "weft/comm/threads/run_threads.h"
#include "weft/measure/median.h"
#include "weft/measure/rank_setup.h"
#include "weft/pipeline/tensor_type.h"
#include "weft/tensor/rank_threads.h"
#include "weft/tensor/time_marks.h"

namespace weft {
namespace {

/// The time of one call among many, on all ranks at once.
template <typename Call>
double time_of_call(World& world, at::Device device, const Call& call) {
  call();
  wait_for_device(device);
  std::vector<double> times;
  const double start = now_ms();
  constexpr double kLimitMs = 300;
  int64_t goes_on = 1;
  while (goes_on != 0) {
    constexpr int kAtOnce = 4;
    world.all().barrier().wait();
    const double begin = now_ms();
    for (int i = 0; i < kAtOnce; ++i) call();
    wait_for_device(device);
    times.push_back((now_ms() - begin) / kAtOnce);
    goes_on = now_ms() - start < kLimitMs ? 1 : 0;
    world.all().broadcast(Buffer{.data = &goes_on, .count = 1, .type = DataType::kInt64}, 0).wait();
  }
  return median_of(std::move(times));
}

MachineRates rates_of_rank(World& world, at::Device device) {
  MachineRates rates;
  const bool is_cpu = device.is_cpu();
  for (const Precision precision : {Precision::kFp64, Precision::kFp32, Precision::kBf16, Precision::kFp16}) {
    // Processors multiply halves in a way that nobody trains with.
    if (is_cpu && precision == Precision::kFp16) continue;
    const int64_t n = is_cpu ? 768 : precision == Precision::kFp64 ? 4096 : 8192;
    const at::TensorOptions options = at::TensorOptions().dtype(tensor_type(precision)).device(device);
    const at::Tensor a = at::randn({n, n}, options), b = at::randn({n, n}, options);
    at::Tensor out = at::empty({n, n}, options);
    const double ms = time_of_call(world, device, [&] { at::mm_out(out, a, b); });
    const auto size = static_cast<double>(n);
    rates.matrix_tflops[precision] = 2 * size * size * size / ms * 1e-9;
  }
  const int64_t elements = is_cpu ? int64_t{8} << 20 : int64_t{128} << 20;
  const at::TensorOptions floats = at::TensorOptions(at::kFloat).device(device);
  const at::Tensor from = at::zeros({elements}, floats), to = at::zeros({elements}, floats);
  const double ms = time_of_call(world, device, [&] { to.copy_(from); });
  rates.copy_bytes_per_ms = static_cast<double>(elements) * 4 / ms;
  rates.memory_gb_per_s = 2 * rates.copy_bytes_per_ms * 1e-6;
  const at::Tensor small = at::zeros({64}, floats);
  constexpr int kOperators = 256;
  const double small_ms = time_of_call(world, device, [&] {
    for (int i = 0; i < kOperators; ++i) small.add_(1);
  });
  rates.kernel_us = small_ms * 1e3 / kOperators;
  return rates;
}

std::string processor_name() {
  std::ifstream lines("/proc/cpuinfo");
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with("model name")) continue;
    const size_t begin = line.find(": ");
    if (begin != std::string::npos) return line.substr(begin + 2);
  }
  return "CPU";
}

}  // namespace

Result<MachineRates> measure_machine(at::Device device, int64_t ranks, int num_cores) {
  std::mutex guard;
  MachineRates rates;
  const auto body = [&](World& world) {
    begin_rank(device, num_cores, world.size());
    MachineRates own = rates_of_rank(world, device);
    const std::lock_guard lock(guard);
    if (world.rank() == 0) rates = std::move(own);
  };
  if (auto error = run_thread_ranks(device.is_cpu() ? ranks : 1, {}, body)) return *std::move(error);
  return rates;
}

std::string device_name(at::Device device, int64_t ranks, int num_cores) {
  if (device.is_cpu()) {
    const int threads = threads_per_rank(num_cores, static_cast<int>(ranks));
    return fmt::format("{}, {}", processor_name(), counted(threads, "core"));
  }
  const auto name = gpu_name(device.index());
  return name ? name->name : std::string("GPU");
}

DeviceMemory gpu_memory(at::Device device) {
  const auto [free, total] = c10::getDeviceAllocator(device.type())->getMemoryInfo(device.index());
  return {.total_bytes = static_cast<double>(total), .free_bytes = static_cast<double>(free)};
}

}  // namespace weft
