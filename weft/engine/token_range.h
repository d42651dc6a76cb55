#pragma once

#include "weft/base/fields.h"

namespace weft {

/// What a token's id may be in a file.
inline constexpr IntegerRange kTokenRange{0, (int64_t{1} << 31) - 1};

}  // namespace weft
