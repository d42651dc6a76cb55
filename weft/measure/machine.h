#pragma once

#include <map>
#include <string>

#include <ATen/core/Tensor.h>

#include "weft/base/result.h"
#include "weft/spec/precision.h"

namespace weft {

/// What one rank of this machine has, while so many run at once.
struct MachineRates {
  std::map<Precision, double> matrix_tflops;
  double memory_gb_per_s = 0;    ///< read and written by copies
  double copy_bytes_per_ms = 0;  ///< of one copy, each byte once
  double kernel_us = 0;          ///< of an operator with next to nothing to do
};

Result<MachineRates> measure_machine(at::Device device, int64_t ranks, int num_cores);

/// "NVIDIA H200", or the processor's name with the cores that a rank has of it.
std::string device_name(at::Device device, int64_t ranks, int num_cores);

/// Bytes of a GPU's memory: all of it, and what is free.
struct DeviceMemory {
  double total_bytes = 0;
  double free_bytes = 0;
};
DeviceMemory gpu_memory(at::Device device);

}  // namespace weft
