#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include <ATen/core/Tensor.h>

namespace weft {

/// Stored elements that are to fill a tensor: rows, or the same columns of each, or columns as rows.
struct WeightCopy {
  at::Tensor to;                    ///< flat; of any type and device
  const std::byte* from = nullptr;  ///< the first one, in memory that may still have to be read from disk
  at::ScalarType type = at::kFloat;
  int64_t row_elements = 0;
  int64_t row_stride = 0;  ///< elements from the start of a row to that of the next; more where columns are left out

  int64_t column_stride = 1;  ///< from an element of a row to the next: more where columns are stored as rows

  bool has_gaps() const { return row_stride != row_elements || column_stride != 1; }
  /// From the first stored element to the last.
  int64_t stored_elements() const {
    if (to.numel() == 0) return 0;
    return (to.numel() / row_elements - 1) * row_stride + (row_elements - 1) * column_stride + 1;
  }
};

/// Makes all copies, on as many threads as ATen uses. The index of the first whose elements are not all finite, if any.
std::optional<size_t> copy_weights(const std::vector<WeightCopy>& copies);

}  // namespace weft
