#include "weft/data/text/byte_level.h"

#include <array>

#include "weft/base/utf8.h"

namespace weft {
namespace {

constexpr bool is_visible(unsigned byte) {
  return (byte >= 0x21 && byte <= 0x7e) || (byte >= 0xa1 && byte <= 0xac) || byte >= 0xae;
}

struct Table {
  std::array<char32_t, 256> characters{};
  std::array<int16_t, 0x200> bytes{};

  constexpr Table() {
    bytes.fill(-1);
    char32_t next = 0x100;
    for (unsigned byte = 0; byte < 256; ++byte) {
      characters[byte] = is_visible(byte) ? byte : next++;
      bytes[characters[byte]] = static_cast<int16_t>(byte);
    }
  }
};
constexpr Table kTable;

}  // namespace

char32_t character_of_byte(unsigned char byte) {
  return kTable.characters[byte];
}

std::optional<std::string> bytes_of_entry(std::string_view entry) {
  std::string bytes;
  bytes.reserve(entry.size());
  for (size_t i = 0; i < entry.size();) {
    const Utf8Character next = utf8_at(entry, i);
    i += next.length;
    if (next.code >= kTable.bytes.size() || kTable.bytes[next.code] < 0) return std::nullopt;
    bytes += static_cast<char>(kTable.bytes[next.code]);
  }
  return bytes;
}

}  // namespace weft
