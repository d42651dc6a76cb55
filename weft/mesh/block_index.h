#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "weft/mesh/layout.h"

namespace weft {

/// The blocks into which a layout without sums cuts its tensor, and who holds them. Blocks do not overlap; those
/// without elements are left out; each has a number, and all ranks along replicated axes hold the same one.
class BlockIndex {
 public:
  explicit BlockIndex(const Layout& layout);

  /// The block that the rank at a position holds, if it has elements.
  std::optional<int64_t> at(int64_t position) const;
  /// The positions that hold a block, ascending.
  std::vector<int64_t> holders(int64_t block) const;
  /// Every block that has elements in a box, with what it has there.
  void for_each_overlap(const Box& box, const std::function<void(int64_t block, Box part)>& f) const;

 private:
  struct Part {
    Range range;
    int64_t number = 0;
    int64_t offset = 0;  ///< of its holders' positions
  };

  Layout layout_;
  std::vector<std::vector<Part>> parts_;  ///< per dim, ascending, without empty ones
  std::vector<int64_t> strides_;          ///< of a dim's part in the number of a block
  std::vector<int64_t> copy_offsets_;
};

}  // namespace weft
