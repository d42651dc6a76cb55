#include "weft/mesh/segments.h"

#include "weft/base/check.h"

namespace weft {

PackedSegments::PackedSegments(const std::vector<int64_t>& lengths) {
  for (const int64_t length : lengths) {
    WEFT_CHECK(length >= 0, "a segment has {} rows", length);
    if (length == 0) continue;
    if (runs_.empty() || runs_.back().length != length) runs_.push_back({.begin = num_rows_, .length = length});
    ++runs_.back().count;
    num_rows_ += length;
  }
}

std::vector<int64_t> PackedSegments::lengths() const {
  std::vector<int64_t> lengths;
  for (const SegmentRun& run : runs_) lengths.insert(lengths.end(), static_cast<size_t>(run.count), run.length);
  return lengths;
}

}  // namespace weft
