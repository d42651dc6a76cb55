#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace weft {

/// What Python's str.isspace and the \s of its patterns take.
bool is_python_space(char32_t c);
/// Whether Python's lower leaves it, and whether it is the same in every case; beyond ASCII.
bool is_lowered(char32_t c);
bool has_no_case(char32_t c);
/// Whether Python's repr writes it as an escape, beyond ASCII.
bool is_written_as_escape(char32_t c);

size_t characters_in(std::string_view text);
/// Where the character `place` begins; the end where there are fewer.
size_t offset_of_character(std::string_view text, size_t place);
/// Characters as Python cuts them in steps.
std::u32string characters_of(std::string_view text);
std::string text_of(std::u32string_view characters);

/// Without these characters at its ends, or without blanks.
std::string_view stripped(std::string_view text, const std::optional<std::string_view>& characters, bool left,
                          bool right);

/// Where `part` is found, or npos; in time linear in both, which std::string::find does not promise.
size_t found_at(std::string_view text, std::string_view part, size_t from = 0);
size_t last_found_at(std::string_view text, std::string_view part);

/// As Python's str.splitlines.
std::vector<std::string_view> python_lines(std::string_view text, bool keeps_ends);

}  // namespace weft
