#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>

namespace weft {

/// Bytes that a process on this machine can still get, swap and the limits of its control groups (a container's, a
/// batch system's) considered; nothing where the system does not tell. A process that takes more is killed without a
/// word, so large needs are compared with it first. `root` is where proc and sys are.
std::optional<int64_t> available_host_memory(const std::filesystem::path& root = "/");

}  // namespace weft
