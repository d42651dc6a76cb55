#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace weft {

/// The CRC-32C (Castagnoli) of bytes that follow others, whose own it is given. With the processor's instruction where
/// there is one.
uint32_t crc32c(std::span<const std::byte> bytes, uint32_t before = 0);

/// The same by tables alone.
uint32_t crc32c_by_tables(std::span<const std::byte> bytes, uint32_t before = 0);

}  // namespace weft
