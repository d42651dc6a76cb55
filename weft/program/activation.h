#pragma once

#include <cstdint>

namespace weft {

/// What is applied to every element between two matrix products.
enum class Activation : uint8_t { kSilu, kGelu, kGeluTanh, kQuickGelu, kRelu, kTanh, kSigmoid };

}  // namespace weft
