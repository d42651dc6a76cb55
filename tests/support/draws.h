#pragma once

#include <cstdlib>

namespace weft {

/// A build with sanitizers computes some ten times slower. A proof by brute force that the optimised build makes whole
/// is made on every n-th example there.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool kIsSanitized = true;
#else
inline constexpr bool kIsSanitized = false;
#endif

/// How many examples a random suite draws: usually this many, with scripts/test --long ten times as many.
template <typename Count>
Count draws(Count usual) {
  static const bool is_long = std::getenv("WEFT_LONG_TESTS") != nullptr;
  return is_long ? usual * 10 : usual;
}

}  // namespace weft
