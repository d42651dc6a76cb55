#pragma once

#include <array>
#include <cstdint>

namespace weft {

/// Four numbers of 32 bits.
using PhiloxBlock = std::array<uint32_t, 4>;

/// Philox 4x32 with ten rounds: a random block for every counter and key, each found without those before it. By
/// Salmon, Moraes, Dror and Shaw, "Parallel random numbers: as easy as 1, 2, 3", 2011. Written for loops over counters
/// that the compiler vectorises.
inline PhiloxBlock philox_4x32_10(PhiloxBlock counter, std::array<uint32_t, 2> key) {
#pragma GCC unroll 10
  for (int round = 0; round < 10; ++round) {
    const uint64_t first = uint64_t{0xd2511f53} * counter[0];
    const uint64_t second = uint64_t{0xcd9e8d57} * counter[2];
    counter = {static_cast<uint32_t>(second >> 32) ^ counter[1] ^ key[0], static_cast<uint32_t>(second),
               static_cast<uint32_t>(first >> 32) ^ counter[3] ^ key[1], static_cast<uint32_t>(first)};
    key[0] += 0x9e3779b9;
    key[1] += 0xbb67ae85;
  }
  return counter;
}

}  // namespace weft
