#pragma once

#include <cstdint>
#include <vector>

namespace weft {

/// Consecutive segments of one length.
struct SegmentRun {
  int64_t begin = 0;   ///< first row
  int64_t length = 0;  ///< rows of each
  int64_t count = 0;
};

/// How packed rows fall into sequences that do not see each other.
class PackedSegments {
 public:
  PackedSegments() = default;
  /// Empty segments are dropped.
  explicit PackedSegments(const std::vector<int64_t>& lengths);

  const std::vector<SegmentRun>& runs() const { return runs_; }
  int64_t num_rows() const { return num_rows_; }
  /// Of every segment in turn.
  std::vector<int64_t> lengths() const;

 private:
  std::vector<SegmentRun> runs_;
  int64_t num_rows_ = 0;
};

}  // namespace weft
