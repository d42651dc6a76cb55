#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace weft {

/// How many bytes at the front are one well-formed character; 0 where they are not. `more` says whether the bytes could
/// be the beginning of a character that goes on.
struct Utf8Front {
  size_t length = 0;
  size_t broken = 0;  ///< where length is 0: bytes that one replacement character stands for
  bool more = false;
};
Utf8Front utf8_front(std::string_view text);

/// Where a text stops being UTF-8.
std::optional<size_t> first_not_utf8(std::string_view text);

inline bool is_valid_utf8(std::string_view text) {
  return !first_not_utf8(text);
}

/// The text with U+FFFD for every broken sequence: as many as Python's and Rust's replacement make.
std::string with_replacements(std::string_view text);

/// The character at `offset` of a valid text, and its length.
struct Utf8Character {
  char32_t code = 0;
  uint32_t length = 1;
};

inline Utf8Character utf8_at(std::string_view text, size_t offset) {
  const auto byte = [&](size_t i) { return static_cast<char32_t>(static_cast<unsigned char>(text[offset + i])); };
  const char32_t lead = byte(0);
  if (lead < 0x80) return {lead, 1};
  if (lead < 0xe0) return {(lead & 0x1f) << 6 | (byte(1) & 0x3f), 2};
  if (lead < 0xf0) return {(lead & 0x0f) << 12 | (byte(1) & 0x3f) << 6 | (byte(2) & 0x3f), 3};
  return {(lead & 0x07) << 18 | (byte(1) & 0x3f) << 12 | (byte(2) & 0x3f) << 6 | (byte(3) & 0x3f), 4};
}

/// Where the character before `offset` (above 0) of a valid text begins.
inline size_t utf8_before(std::string_view text, size_t offset) {
  do --offset;
  while (offset > 0 && (static_cast<unsigned char>(text[offset]) & 0xc0) == 0x80);
  return offset;
}

void append_utf8(std::string& text, char32_t code);

}  // namespace weft
