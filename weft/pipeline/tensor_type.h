#pragma once

#include <c10/core/ScalarType.h>

#include "weft/spec/precision.h"

namespace weft {

/// The elements of tensors in a precision of the plan.
inline at::ScalarType tensor_type(Precision precision) {
  switch (precision) {
    case Precision::kFp64:
      return at::kDouble;
    case Precision::kFp32:
      return at::kFloat;
    case Precision::kBf16:
      return at::kBFloat16;
    case Precision::kFp16:
      return at::kHalf;
  }
  return at::kFloat;
}

}  // namespace weft
