#include "weft/base/utf8.h"

namespace weft {

std::optional<size_t> first_not_utf8(std::string_view text) {
  for (size_t i = 0; i < text.size();) {
    const auto byte = [&](size_t at) { return at < text.size() ? static_cast<unsigned char>(text[at]) : 0U; };
    const unsigned lead = byte(i);
    const size_t length = lead < 0x80 ? 1 : lead < 0xc2 ? 0 : lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : lead < 0xf5 ? 4 : 0;
    if (length == 0) return i;
    for (size_t k = 1; k < length; ++k) {
      if ((byte(i + k) & 0xc0U) != 0x80) return i;
    }
    const unsigned second = byte(i + 1);
    const bool is_overlong = (lead == 0xe0 && second < 0xa0) || (lead == 0xf0 && second < 0x90);
    const bool is_outside = (lead == 0xed && second >= 0xa0) || (lead == 0xf4 && second >= 0x90);
    if (length > 2 && (is_overlong || is_outside)) return i;
    i += length;
  }
  return std::nullopt;
}

}  // namespace weft
