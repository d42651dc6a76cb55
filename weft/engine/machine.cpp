#include "weft/measure/machine.h"

#include <cmath>
#include <cstdlib>

#include <fmt/format.h>
#include <torch/version.h>

#include "weft/base/counted.h"
#include "weft/base/units.h"
#include "weft/comm/cuda/cuda_driver.h"
#include "weft/engine/core_share.h"
#include "weft/engine/host_memory.h"
#include "weft/engine/profiler.h"
#include "weft/engine/tensor_options.h"
#include "weft/layers/own_kernels.h"

namespace weft {
namespace {

/// To three significant digits: no measurement knows more.
double rounded(double value) {
  return std::strtod(fmt::format("{:.3g}", value).c_str(), nullptr);
}

std::vector<std::string> others_on_host(int cores) {
  double load = 0;
  if (getloadavg(&load, 1) != 1 || load < static_cast<double>(cores) + 0.5) return {};
  return {
      fmt::format("this machine is busy: a load of {:.1f} on {} in the last minute; end what else runs, or its "
                  "times are in the profile",
                  load, counted(cores, "core"))};
}

std::vector<std::string> others_on_gpu(at::Device device, double used_bytes) {
  constexpr double kContextBytes = 2e9;
  if (used_bytes < kContextBytes) return {};
  return {
      fmt::format("{} is in use: {} of its memory are taken by other programs; end them, or their times are in the "
                  "profile",
                  device.str(), format_bytes(used_bytes))};
}

}  // namespace

Result<MachineReport> look_at_machine(const MachineRequest& request) {
  WEFT_TRY(const at::Device device, open_device(request.device));
  const int cores = usable_cores();
  const int64_t ranks = request.ranks > 0 ? request.ranks : device.is_cpu() ? cores : std::max(1, num_gpus());
  MachineReport report{.software = fmt::format("LibTorch {}", TORCH_VERSION)};
  Cluster& cluster = report.cluster;
  cluster.name = "this machine";
  cluster.nodes = 1;
  cluster.devices_per_node = ranks;
  cluster.device.name = device_name(device, ranks, cores);
  if (device.is_cpu()) {
    report.busy = others_on_host(cores);
    const auto available = available_host_memory();
    cluster.device.memory_gib =
        rounded(static_cast<double>(available.value_or(int64_t{4} << 30)) / kGiB / static_cast<double>(ranks));
  } else {
    const DeviceMemory memory = gpu_memory(device);
    report.reserved_bytes = memory.total_bytes - memory.free_bytes;
    report.busy = others_on_gpu(device, report.reserved_bytes);
    cluster.device.memory_gib = rounded(memory.total_bytes / kGiB);
    cluster.device.reserved_memory_gib = rounded(report.reserved_bytes / kGiB);
  }
  if (request.show) request.show("measuring this machine's rates");
  WEFT_TRY(const MachineRates rates, measure_machine(device, ranks, cores));
  report.copy_bytes_per_ms = rates.copy_bytes_per_ms;
  cluster.device.memory_bandwidth_gb_per_s = rounded(rates.memory_gb_per_s);
  for (const auto& [precision, tflops] : rates.matrix_tflops) cluster.device.matrix_tflops[precision] = rounded(tflops);
  // Rates are measured, so that large products and copies reach all of them.
  cluster.efficiency.matrix = cluster.efficiency.memory = 1;
  cluster.efficiency.within_node = 1;
  cluster.efficiency.kernel_us = cluster.efficiency.host_us_per_kernel = rounded(rates.kernel_us);
  if (!device.is_cpu()) {
    cluster.efficiency.kernel_us = Efficiency().kernel_us;
    // Own kernels make one pass over memory, and updates are nearly as fast as it (bench/RESULTS.md, "Steps on a GPU").
    if (!missing_kernels(device)) cluster.efficiency.passes_per_operator = 1;
    if (!missing_kernels(device)) cluster.efficiency.update = 0.8;
  }
  // Until they are measured: ranks of a processor copy, GPUs are joined by a bus.
  cluster.within_node = {.bandwidth_gb_per_s = device.is_cpu() ? rounded(rates.memory_gb_per_s / 4) : 25,
                         .latency_us = 10};
  cluster.between_nodes = {.bandwidth_gb_per_s = 1.25, .latency_us = 50};
  cluster.cards_per_node = 1;
  return report;
}

}  // namespace weft
