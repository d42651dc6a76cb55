#pragma once

#include <string_view>

#include "weft/exchange/shell_variables.h"

namespace weft {

/// Whether a text fits a pattern of a shell: '*', '?', [...] and letters behind a backslash, which are themselves.
/// Unknown where the pattern is of another kind, or comparing would take too long. What it took is added to `work`.
Truth fits_shell_pattern(std::string_view text, std::string_view pattern, size_t& work);

/// Whether a letter means something in a pattern, so that it must be marked where it is quoted.
bool is_pattern_letter(char letter);

}  // namespace weft
