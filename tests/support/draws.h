#pragma once

#include <cstdlib>

namespace weft {

/// How many examples a random suite draws: usually this many, with scripts/test --long ten times as many.
template <typename Count>
Count draws(Count usual) {
  static const bool is_long = std::getenv("WEFT_LONG_TESTS") != nullptr;
  return is_long ? usual * 10 : usual;
}

}  // namespace weft
