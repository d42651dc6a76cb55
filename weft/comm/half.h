#pragma once

#include <bit>
#include <cstdint>

namespace weft {

// Conversions of 16-bit floats, rounding to nearest even. Without branches, so that loops over them are vectorized, and
// without subnormal intermediate results, so that a process that flushes those gets the same numbers.

inline float bf16_to_float(uint16_t bits) {
  return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16);
}

inline uint16_t float_to_bf16(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  const uint32_t rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
  const uint32_t quiet_nan = (bits >> 16) | 0x40u;
  return static_cast<uint16_t>((bits & 0x7fffffffu) > 0x7f800000u ? quiet_nan : rounded);
}

inline float fp16_to_float(uint16_t bits) {
  const uint32_t magnitude = bits & 0x7fffu;
  const uint32_t normal = (magnitude << 13) + 0x38000000u;
  const uint32_t infinite = (magnitude << 13) | 0x7f800000u;
  const auto subnormal = std::bit_cast<uint32_t>(std::bit_cast<float>(0x3f000000u | magnitude) - 0.5f);
  const uint32_t finite = magnitude < 0x400u ? subnormal : normal;
  const uint32_t value = magnitude >= 0x7c00u ? infinite : finite;
  return std::bit_cast<float>(value | static_cast<uint32_t>(bits & 0x8000u) << 16);
}

inline uint16_t float_to_fp16(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  const uint32_t magnitude = bits & 0x7fffffffu;
  const uint32_t normal = (magnitude - 0x38000000u + 0xfffu + ((magnitude >> 13) & 1u)) >> 13;
  // Adding 0.5 makes the floating-point unit round at the last place of a subnormal half.
  const uint32_t small = magnitude < 0x38800000u ? magnitude : 0;
  const uint32_t subnormal = std::bit_cast<uint32_t>(std::bit_cast<float>(small) + 0.5f) - 0x3f000000u;
  const uint32_t finite = magnitude < 0x38800000u ? subnormal : normal;
  const uint32_t large = magnitude > 0x7f800000u ? 0x7e00u : 0x7c00u;
  return static_cast<uint16_t>((magnitude >= 0x477ff000u ? large : finite) | ((bits >> 16) & 0x8000u));
}

}  // namespace weft
