#pragma once

#include <cstdint>
#include <optional>

namespace weft {

/// Bytes that a process on this machine can still get, swap and a container's limit considered; nothing where the
/// system does not tell. A process that takes more is killed without a word, so large needs are compared with it first.
std::optional<int64_t> available_host_memory();

}  // namespace weft
