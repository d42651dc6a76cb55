#include "weft/checkpoint/crc32c.h"

#include <array>
#include <bit>
#include <cstring>

#if defined(__x86_64__)
#include <nmmintrin.h>
#endif

namespace weft {
namespace {

static_assert(std::endian::native == std::endian::little);

constexpr size_t kWordBytes = 8;
using Tables = std::array<std::array<uint32_t, 256>, kWordBytes>;

/// tables[k][b]: what byte b does to the remainder when k more bytes follow it.
constexpr Tables make_tables() {
  constexpr uint32_t kReversedPolynomial = 0x82f63b78;
  Tables tables{};
  for (uint32_t byte = 0; byte < 256; ++byte) {
    uint32_t rest = byte;
    for (int bit = 0; bit < 8; ++bit) rest = (rest & 1) != 0 ? rest >> 1 ^ kReversedPolynomial : rest >> 1;
    tables[0][byte] = rest;
  }
  for (size_t k = 1; k < kWordBytes; ++k) {
    for (size_t byte = 0; byte < 256; ++byte) {
      const uint32_t rest = tables[k - 1][byte];
      tables[k][byte] = rest >> 8 ^ tables[0][rest & 0xff];
    }
  }
  return tables;
}

constexpr Tables kTables = make_tables();

uint64_t word_at(const std::byte* bytes) {
  uint64_t word = 0;
  std::memcpy(&word, bytes, kWordBytes);
  return word;
}

#if defined(__x86_64__)
__attribute__((target("sse4.2"))) uint32_t crc32c_by_instruction(std::span<const std::byte> bytes, uint32_t before) {
  uint64_t rest = ~before;
  const std::byte* next = bytes.data();
  const std::byte* end = next + bytes.size();
  for (; end - next >= static_cast<std::ptrdiff_t>(kWordBytes); next += kWordBytes) {
    rest = _mm_crc32_u64(rest, word_at(next));
  }
  auto narrow = static_cast<uint32_t>(rest);
  for (; next != end; ++next) narrow = _mm_crc32_u8(narrow, std::to_integer<uint8_t>(*next));
  return ~narrow;
}
#endif

}  // namespace

uint32_t crc32c_by_tables(std::span<const std::byte> bytes, uint32_t before) {
  uint32_t rest = ~before;
  const std::byte* next = bytes.data();
  const std::byte* end = next + bytes.size();
  for (; end - next >= static_cast<std::ptrdiff_t>(kWordBytes); next += kWordBytes) {
    const uint64_t word = word_at(next) ^ rest;
    rest = 0;
    for (size_t k = 0; k < kWordBytes; ++k) rest ^= kTables[kWordBytes - 1 - k][word >> 8 * k & 0xff];
  }
  for (; next != end; ++next) rest = rest >> 8 ^ kTables[0][(rest ^ std::to_integer<uint32_t>(*next)) & 0xff];
  return ~rest;
}

uint32_t crc32c(std::span<const std::byte> bytes, uint32_t before) {
#if defined(__x86_64__)
  static const bool has_instruction = __builtin_cpu_supports("sse4.2") != 0;
  if (has_instruction) return crc32c_by_instruction(bytes, before);
#endif
  return crc32c_by_tables(bytes, before);
}

}  // namespace weft
