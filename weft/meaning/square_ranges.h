#pragma once

#include <vector>

#include "weft/meaning/bucket_layout.h"

namespace weft {

/// Squares of gradients are summed by rows of so many elements.
inline constexpr int64_t kSquareRow = 1024;
/// Rounding of rows in single precision cancels out over many; fewer elements are summed in double precision at once.
inline constexpr int64_t kFewSquares = 64 * kSquareRow;

/// Elements of a bucket whose squares are summed at once, and the factor that the sum counts with.
struct WeightedRange {
  ElementRange elements;
  double factor = 0;
};

/// Joins weights of a bucket that count alike and have nothing but padding between them, which is zero.
class SquareRanges {
 public:
  /// The next in the bucket. A factor of 0: it is left out.
  void add(const ElementRange& elements, double factor) {
    if (elements.size() == 0) return;
    if (is_open_ && ranges_.back().factor == factor)
      ranges_.back().elements.end = elements.end;
    else if (factor != 0)
      ranges_.push_back({elements, factor});
    is_open_ = factor != 0;
  }

  const std::vector<WeightedRange>& ranges() const { return ranges_; }

 private:
  std::vector<WeightedRange> ranges_;
  bool is_open_ = false;
};

}  // namespace weft
