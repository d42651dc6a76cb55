#pragma once

#include <string_view>

namespace weft {

/// Whether a text is what a pattern says: '*' is any letters, '?' one.
bool fits_pattern(std::string_view text, std::string_view pattern);

}  // namespace weft
