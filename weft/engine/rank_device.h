#pragma once

#include <string>

#include <ATen/core/Tensor.h>

#include "weft/base/result.h"
#include "weft/comm/world.h"

namespace weft {

/// The device that a rank computes on, ready for use, and the calling thread's from now on.
Result<at::Device> open_rank_device(World& world, const std::string& name);

}  // namespace weft
