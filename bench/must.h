#pragma once

#include <utility>

#include "weft/base/check.h"
#include "weft/base/result.h"

namespace weft {

/// The value, or the end of the benchmark with what went wrong.
template <typename T>
T must(Result<T> result) {
  WEFT_CHECK(result.ok(), "{}", result.error().message());
  return *std::move(result);
}

}  // namespace weft
