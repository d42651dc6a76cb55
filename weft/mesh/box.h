#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

namespace weft {

/// Indices begin, ..., end - 1 of one dim.
struct Range {
  int64_t begin = 0;
  int64_t end = 0;

  int64_t size() const { return end - begin; }
  bool empty() const { return end <= begin; }
  /// An empty range is inside every range.
  bool is_inside(Range other) const { return empty() || (other.begin <= begin && end <= other.end); }

  bool operator==(const Range&) const = default;
};

inline Range intersection(Range a, Range b) {
  const int64_t begin = std::max(a.begin, b.begin);
  return {begin, std::max(begin, std::min(a.end, b.end))};
}

inline int64_t total_size(const std::vector<Range>& ranges) {
  int64_t sum = 0;
  for (const Range& range : ranges) sum += range.size();
  return sum;
}

/// A block of a tensor: a range for every dim.
using Box = std::vector<Range>;

inline Box intersection(const Box& a, const Box& b) {
  Box box(a.size());
  for (size_t dim = 0; dim < a.size(); ++dim) box[dim] = intersection(a[dim], b[dim]);
  return box;
}

/// A tensor without dims has one element.
inline int64_t num_elements(const Box& box) {
  int64_t product = 1;
  for (const Range& range : box) product *= range.size();
  return product;
}

}  // namespace weft
