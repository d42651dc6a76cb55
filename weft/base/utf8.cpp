#include "weft/base/utf8.h"

#include <algorithm>

namespace weft {

Utf8Front utf8_front(std::string_view text) {
  if (text.empty()) return {};
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned lead = byte(0);
  if (lead < 0x80) return {.length = 1};
  const size_t length = lead >= 0xc2 && lead <= 0xdf   ? 2
                        : lead >= 0xe0 && lead <= 0xef ? 3
                        : lead >= 0xf0 && lead <= 0xf4 ? 4
                                                       : 0;
  if (length == 0) return {.broken = 1};
  for (size_t i = 1; i < length; ++i) {
    if (i == text.size()) return {.broken = i, .more = true};
    // The second byte also rules out overlong forms, surrogates and what lies beyond the last character.
    const unsigned least = i > 1 ? 0x80 : lead == 0xe0 ? 0xa0 : lead == 0xf0 ? 0x90 : 0x80;
    const unsigned most = i > 1 ? 0xbf : lead == 0xed ? 0x9f : lead == 0xf4 ? 0x8f : 0xbf;
    if (byte(i) < least || byte(i) > most) return {.broken = i};
  }
  return {.length = length};
}

std::optional<size_t> first_not_utf8(std::string_view text) {
  for (size_t i = 0; i < text.size();) {
    if (static_cast<unsigned char>(text[i]) < 0x80) {
      ++i;
      continue;
    }
    const size_t length = utf8_front(text.substr(i)).length;
    if (length == 0) return i;
    i += length;
  }
  return std::nullopt;
}

std::string with_replacements(std::string_view text) {
  std::string valid;
  valid.reserve(text.size());
  for (size_t i = 0; i < text.size();) {
    const Utf8Front front = utf8_front(text.substr(i));
    if (front.length > 0) {
      valid.append(text, i, front.length);
    } else {
      valid += "\xef\xbf\xbd";
    }
    i += std::max(front.length, front.broken);
  }
  return valid;
}

void append_utf8(std::string& text, char32_t code) {
  const auto add = [&](char32_t byte) { text += static_cast<char>(byte); };
  if (code < 0x80) {
    add(code);
  } else if (code < 0x800) {
    add(0xc0 | code >> 6);
    add(0x80 | (code & 0x3f));
  } else if (code < 0x10000) {
    add(0xe0 | code >> 12);
    add(0x80 | (code >> 6 & 0x3f));
    add(0x80 | (code & 0x3f));
  } else {
    add(0xf0 | code >> 18);
    add(0x80 | (code >> 12 & 0x3f));
    add(0x80 | (code >> 6 & 0x3f));
    add(0x80 | (code & 0x3f));
  }
}

}  // namespace weft
