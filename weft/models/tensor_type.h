#pragma once

#include <optional>

#include <c10/core/ScalarType.h>

#include "weft/weights/weight_type.h"

namespace weft {

/// The floating-point types that weights may be stored in, as tensors have them; nothing for others.
std::optional<at::ScalarType> tensor_type(WeightType type);
std::optional<WeightType> weight_type(at::ScalarType type);

}  // namespace weft
