#pragma once

#include <cstdint>
#include <cstdlib>

namespace weft {

/// Where a suite of random plans begins to count: at `usual`, or as much further as WEFT_FIRST_SEED says, so that one
/// build can be run over plans that nobody has looked at.
inline uint64_t first_seed(uint64_t usual) {
  const char* offset = std::getenv("WEFT_FIRST_SEED");
  return usual + (offset != nullptr ? std::strtoull(offset, nullptr, 10) : 0);
}

}  // namespace weft
