#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace weft {

/// Byte-level vocabularies write each byte as a character: itself where it is a visible one of Latin-1, else one of
/// those from U+0100 on.
char32_t character_of_byte(unsigned char byte);

/// The bytes that a vocabulary entry stands for; none where a character stands for no byte.
std::optional<std::string> bytes_of_entry(std::string_view entry);

}  // namespace weft
