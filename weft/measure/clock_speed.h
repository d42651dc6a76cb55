#pragma once

#include <optional>

#include <ATen/core/Tensor.h>

namespace weft {

/// The clock of a device at this moment, in MHz: of a GPU's multiprocessors as NVIDIA's management library reads it,
/// of a processor the mean of its cores as the kernel reports them. Nothing where neither says.
std::optional<double> clock_mhz(at::Device device);

}  // namespace weft
