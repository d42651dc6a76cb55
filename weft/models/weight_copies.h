#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include <ATen/core/Tensor.h>

namespace weft {

/// Stored elements that are to fill a tensor.
struct WeightCopy {
  at::Tensor to;                    ///< flat; of any type and device
  const std::byte* from = nullptr;  ///< as many elements, in memory that may still have to be read from disk
  at::ScalarType type = at::kFloat;
};

/// Makes all copies, on as many threads as ATen uses. The index of the first whose elements are not all finite, if any.
std::optional<size_t> copy_weights(const std::vector<WeightCopy>& copies);

}  // namespace weft
