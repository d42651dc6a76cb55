#pragma once

#include <cstdint>

namespace weft {

/// Of a global batch.
inline constexpr int64_t kMostBatchSamples = 100'000'000;

}  // namespace weft
