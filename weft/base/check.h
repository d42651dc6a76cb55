#pragma once

#include <stdexcept>
#include <string>

#include <fmt/format.h>

namespace weft {

/// A broken invariant: a bug in Weft, never a user's mistake.
class InternalError : public std::logic_error {
  using std::logic_error::logic_error;
};

[[noreturn]] inline void fail_check(const char* file, int line, const char* condition, const std::string& what) {
  throw InternalError(fmt::format("{}:{}: {} ({})", file, line, what, condition));
}

}  // namespace weft

/// Throws InternalError with file, line and a formatted reason when an invariant does not hold.
#define WEFT_CHECK(condition, ...)                                                                  \
  do {                                                                                              \
    if (!(condition)) ::weft::fail_check(__FILE__, __LINE__, #condition, fmt::format(__VA_ARGS__)); \
  } while (false)
