#pragma once

#include <cstdint>
#include <vector>

#include "weft/mesh/box.h"

namespace weft {

/// How one dim is cut over the axes that shard it: nested, the outermost axis cuts first and the parts are numbered
/// with the innermost axis running fastest, so part i lies before part i + 1.
///
/// The default cut is balanced: of n parts the first ones get one more index where n does not divide the length, and
/// parts are empty where the length is smaller than n. Explicit sizes say otherwise, for ragged rows.
class Split {
 public:
  /// Balanced over each count in turn, the outermost first; no counts leave the dim whole.
  Split(int64_t length, std::vector<int64_t> counts);
  /// With the size of every part. They must be as many as the counts' product; their sum is the length.
  Split(const std::vector<int64_t>& sizes, std::vector<int64_t> counts);

  int64_t length() const { return length_; }
  int64_t num_parts() const { return num_parts_; }
  const std::vector<int64_t>& counts() const { return counts_; }
  bool is_balanced() const { return begins_.empty(); }
  Range part(int64_t index) const;
  /// All of them, in less time than one by one.
  std::vector<Range> parts() const;
  std::vector<int64_t> sizes() const;

  /// The same parts under the same counts, whether they were given or balanced.
  bool operator==(const Split&) const = default;

 private:
  int64_t length_ = 0;
  int64_t num_parts_ = 1;
  std::vector<int64_t> counts_;
  std::vector<int64_t> begins_;  ///< of every part and the end; empty when balanced
};

/// Part `index` of `count` balanced parts of a range.
Range balanced_part(Range whole, int64_t count, int64_t index);

}  // namespace weft
