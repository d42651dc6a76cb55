#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include <ATen/core/Tensor.h>

#include "weft/mesh/box.h"

namespace weft {

/// Some rows of a tensor [rows, width], by their places. Where these are one ascending run the rows are a slice, and
/// nothing is gathered.
class RowPlaces {
 public:
  RowPlaces() = default;
  /// The places of tensors on a device.
  RowPlaces(std::span<const Range> places, at::Device device);

  int64_t size() const { return size_; }
  bool is_run() const { return !index_.defined(); }
  /// All of so many rows, in order.
  bool are_all_of(int64_t num_rows) const { return is_run() && begin_ == 0 && size_ == num_rows; }

  /// The rows, of a contiguous tensor a contiguous one: a view of a run.
  at::Tensor take(const at::Tensor& rows) const;
  /// Writes rows to their places in a tensor.
  void put(const at::Tensor& rows, at::Tensor into) const;

 private:
  int64_t size_ = 0;
  int64_t begin_ = 0;  ///< of a run
  at::Tensor index_;   ///< undefined for a run
};

}  // namespace weft
