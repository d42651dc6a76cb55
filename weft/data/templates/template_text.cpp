#include "weft/data/templates/template_text.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "weft/base/utf8.h"
#include "weft/data/text/characters.h"

namespace weft {
namespace {

struct CharacterRange {
  char32_t first, last;
};

template <size_t N>
bool is_in(const std::array<CharacterRange, N>& ranges, char32_t c) {
  return std::any_of(ranges.begin(), ranges.end(),
                     [&](const CharacterRange& r) { return c >= r.first && c <= r.last; });
}

bool ends_line(char32_t c) {
  return (c >= 0x0a && c <= 0x0d) || (c >= 0x1c && c <= 0x1e) || c == 0x85 || c == 0x2028 || c == 0x2029;
}

}  // namespace

bool is_python_space(char32_t c) {
  return (c >= 9 && c <= 13) || (c >= 0x1c && c <= 0x20) || c == 0x85 || c == 0xa0 || c == 0x1680 ||
         (c >= 0x2000 && c <= 0x200a) || c == 0x2028 || c == 0x2029 || c == 0x202f || c == 0x205f || c == 0x3000;
}

bool is_lowered(char32_t c) {
  // Roman numerals and letters in circles have a case, and are no letters.
  const bool is_upper_sign = (c >= 0x2160 && c <= 0x216f) || (c >= 0x24b6 && c <= 0x24cf);
  return !is_upper_sign && !Characters::get().has(c, Characters::kUpper);
}

bool has_no_case(char32_t c) {
  const bool is_lower_sign = c == 0x345 || (c >= 0x2170 && c <= 0x217f) || (c >= 0x24d0 && c <= 0x24e9);
  return is_lowered(c) && !is_lower_sign && !Characters::get().has(c, Characters::kLower);
}

bool is_written_as_escape(char32_t c) {
  // Controls, formats, blanks and what is for private use.
  static constexpr std::array<CharacterRange, 17> kRanges = {{{0x80, 0xa0},
                                                              {0xad, 0xad},
                                                              {0x600, 0x605},
                                                              {0x61c, 0x61c},
                                                              {0x6dd, 0x6dd},
                                                              {0x70f, 0x70f},
                                                              {0x1680, 0x1680},
                                                              {0x180e, 0x180e},
                                                              {0x2000, 0x200f},
                                                              {0x2028, 0x202f},
                                                              {0x205f, 0x206f},
                                                              {0x3000, 0x3000},
                                                              {0xe000, 0xf8ff},
                                                              {0xfeff, 0xfeff},
                                                              {0xfff0, 0xfffb},
                                                              {0xe0000, 0xe00ff},
                                                              {0xf0000, 0x10ffff}}};
  return is_in(kRanges, c);
}

size_t characters_in(std::string_view text) {
  return static_cast<size_t>(
      std::count_if(text.begin(), text.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xc0) != 0x80; }));
}

size_t offset_of_character(std::string_view text, size_t place) {
  size_t offset = 0;
  for (; place > 0 && offset < text.size(); --place) offset += utf8_at(text, offset).length;
  return offset;
}

std::u32string characters_of(std::string_view text) {
  std::u32string characters;
  for (size_t i = 0; i < text.size();) {
    const Utf8Character next = utf8_at(text, i);
    characters += next.code;
    i += next.length;
  }
  return characters;
}

std::string text_of(std::u32string_view characters) {
  std::string text;
  for (const char32_t c : characters) append_utf8(text, c);
  return text;
}

std::string_view stripped(std::string_view text, const std::optional<std::string_view>& characters, bool left,
                          bool right) {
  std::u32string given = characters ? characters_of(*characters) : std::u32string();
  std::sort(given.begin(), given.end());
  const auto goes = [&](char32_t c) {
    return characters ? std::binary_search(given.begin(), given.end(), c) : is_python_space(c);
  };
  while (left && !text.empty()) {
    const Utf8Character first = utf8_at(text, 0);
    if (!goes(first.code)) break;
    text.remove_prefix(first.length);
  }
  while (right && !text.empty()) {
    const size_t last = utf8_before(text, text.size());
    if (!goes(utf8_at(text, last).code)) break;
    text = text.substr(0, last);
  }
  return text;
}

size_t found_at(std::string_view text, std::string_view part, size_t from) {
  if (from > text.size()) return std::string_view::npos;
  if (part.empty()) return from;
  const void* found = memmem(text.data() + from, text.size() - from, part.data(), part.size());
  return found != nullptr ? static_cast<size_t>(static_cast<const char*>(found) - text.data()) : std::string_view::npos;
}

size_t last_found_at(std::string_view text, std::string_view part) {
  const std::string backwards(text.rbegin(), text.rend()), wanted(part.rbegin(), part.rend());
  const size_t at = found_at(backwards, wanted);
  return at != std::string_view::npos ? text.size() - at - part.size() : at;
}

std::vector<std::string_view> python_lines(std::string_view text, bool keeps_ends) {
  std::vector<std::string_view> lines;
  for (size_t begin = 0, i = 0; i < text.size();) {
    const Utf8Character c = utf8_at(text, i);
    const size_t length = text.substr(i, 2) == "\r\n" ? 2 : c.length;
    i += length;
    if (!ends_line(c.code) && i < text.size()) continue;
    const size_t end = ends_line(c.code) && !keeps_ends ? i - length : i;
    lines.push_back(text.substr(begin, end - begin));
    begin = i;
  }
  return lines;
}

}  // namespace weft
