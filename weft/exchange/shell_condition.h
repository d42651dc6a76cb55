#pragma once

#include <string_view>
#include <vector>

#include "weft/exchange/shell_reader.h"

namespace weft {

/// What [ ... ] or [[ ... ]] says of these words: texts and numbers are compared, files are unknown.
Truth test_of(const std::vector<MarkedText>& words);

/// Whether a text is what a pattern says: '*' is any letters, '?' one.
bool matches_pattern(std::string_view text, std::string_view pattern);

}  // namespace weft
