#pragma once

#include <optional>
#include <string>

#include <ATen/core/Tensor.h>

#include "weft/base/error.h"
#include "weft/comm/launch.h"
#include "weft/engine/train_request.h"

namespace weft {

/// What a job is about to hold on a device.
struct MemoryNeed {
  double bytes = 0;
  std::string what;  ///< a clause that says it: "the model's weights take 14.2 GiB in bf16"
  std::string advice;
};

/// An error where less is left on the device, or on this machine for the CPU; nothing where the system does not tell.
/// To be asked before anything is made: a process that takes too much of a host's memory is killed without a word.
std::optional<Error> check_memory(const MemoryNeed& need, at::Device device);

/// The same of ranks that share a device, by what a plan's ranks are predicted to hold; nothing where that is empty.
/// The error's field is the plan's "memory".
std::optional<Error> check_rank_memory(const std::vector<RankNeed>& needs, HostRanks sharing, at::Device device);

}  // namespace weft
