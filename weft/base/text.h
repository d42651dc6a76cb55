#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace weft {

/// Someone else's text made fit for a one-line message: control characters escaped, and shortened.
std::string printable(std::string_view text, size_t longest = 60);

/// The same of a whole line, however long it is: what it quotes can neither end it nor speak to the terminal.
std::string printable_line(std::string_view line);

/// Text of several lines, each made fit like that.
std::string printable_lines(std::string_view text);

/// The same in quotes.
std::string in_quotes(std::string_view text);

/// Whether a text may stand in a message, a table or a comment as it is: UTF-8 without control characters.
bool is_printable(std::string_view text);

/// "a, b or c".
std::string joined_or(std::span<const std::string> words);

/// The known word that `typed` was probably meant to be: at most a third of its letters wrong.
std::optional<std::string> closest(std::string_view typed, std::span<const std::string> known);

/// " Did you mean 'x'?", or nothing when no known word is close.
std::string did_you_mean(std::string_view typed, std::span<const std::string> known);

/// 73405560320 as "73,405,560,320".
std::string with_commas(int64_t number);

}  // namespace weft
