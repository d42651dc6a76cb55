#pragma once

#include <vector>

#include "weft/exchange/shell_reader.h"

namespace weft {

enum class TestKind { kBrackets, kDoubleBrackets };

/// What [ ... ] or [[ ... ]] says of these words: texts and numbers are compared, files are unknown. Double brackets
/// compare with patterns; the work of that is added.
Truth test_of(const std::vector<MarkedText>& words, TestKind kind, size_t& work);

}  // namespace weft
