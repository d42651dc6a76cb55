#pragma once

#include <cstdint>
#include <string>

#include "weft/base/fields.h"
#include "weft/base/result.h"

namespace weft {

/// The value of a flag that takes a whole number, in decimal digits. The error names the flag, what was given and the
/// range.
Result<int64_t> parse_count(const std::string& flag, const std::string& given, IntegerRange range);

}  // namespace weft
