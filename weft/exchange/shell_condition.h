#pragma once

#include <vector>

#include "weft/exchange/shell_reader.h"

namespace weft {

/// What [ ... ] or [[ ... ]] says of these words: texts and numbers are compared, files are unknown.
Truth test_of(const std::vector<MarkedText>& words);

}  // namespace weft
