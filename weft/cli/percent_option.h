#pragma once

#include <string>

#include "weft/base/result.h"

namespace weft {

/// The value of a flag that takes a percentage from 0 to `most`, as a share. The error names the flag, what was given
/// and the range, and ends with the advice.
Result<double> parse_percent(const std::string& flag, const std::string& given, double most, std::string advice);

}  // namespace weft
