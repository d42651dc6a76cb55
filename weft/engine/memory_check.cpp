#include "weft/engine/memory_check.h"

#include <c10/core/CachingDeviceAllocator.h>
#include <fmt/format.h>

#include "weft/base/units.h"
#include "weft/engine/host_memory.h"
#include "weft/engine/rank_error.h"

namespace weft {

std::optional<Error> check_memory(const MemoryNeed& need, at::Device device) {
  std::optional<double> left;
  if (device.is_cpu()) {
    if (const auto bytes = available_host_memory()) left = static_cast<double>(*bytes);
  } else {
    left = static_cast<double>(c10::getDeviceAllocator(device.type())->getMemoryInfo(device.index()).first);
  }
  if (!left || need.bytes <= *left) return std::nullopt;
  return Error{.kind = ErrorKind::kJob,
               .problem = fmt::format("{}, but {} has {} left", need.what,
                                      device.is_cpu() ? "this machine" : fmt::format("GPU {}", device.index()),
                                      format_bytes(*left)),
               .advice = need.advice};
}

std::optional<Error> check_rank_memory(const std::vector<RankNeed>& needs, HostRanks sharing, at::Device device) {
  if (needs.empty()) return std::nullopt;
  RankNeed sum;
  for (int64_t rank = sharing.first; rank < sharing.first + sharing.count; ++rank) {
    sum.states_bytes += needs[static_cast<size_t>(rank)].states_bytes;
    sum.step_bytes += needs[static_cast<size_t>(rank)].step_bytes;
  }
  const std::string who = sharing.count == 1 ? fmt::format("rank {} needs", sharing.first)
                                             : fmt::format("{} ranks on this machine need", sharing.count);
  auto error = check_memory({.bytes = sum.total_bytes(),
                             .what = fmt::format("{} {} ({} for weights and their states, up to {} for activations)",
                                                 who, format_bytes(sum.total_bytes()), format_bytes(sum.states_bytes),
                                                 format_bytes(sum.step_bytes)),
                             .advice = device.is_cpu() ? kHostMemoryAdvice : kMemoryAdvice},
                            device);
  if (error) error->field = "memory";
  return error;
}

}  // namespace weft
