#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include <ATen/core/Tensor.h>

namespace weft {

/// Stored elements that are to fill a tensor: rows, or the same columns of each.
struct WeightCopy {
  at::Tensor to;                    ///< flat; of any type and device
  const std::byte* from = nullptr;  ///< the first one, in memory that may still have to be read from disk
  at::ScalarType type = at::kFloat;
  int64_t row_elements = 0;
  int64_t row_stride = 0;  ///< elements from the start of a row to that of the next; more where columns are left out

  bool has_gaps() const { return row_stride != row_elements; }
};

/// Makes all copies, on as many threads as ATen uses. The index of the first whose elements are not all finite, if any.
std::optional<size_t> copy_weights(const std::vector<WeightCopy>& copies);

}  // namespace weft
