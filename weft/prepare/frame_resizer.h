#pragma once

#include <cstdint>
#include <vector>

#include "weft/prepare/pixels.h"
#include "weft/prepare/resize_weights.h"
#include "weft/probe/patch_rules.h"

namespace weft {

/// Some rows of a picture at its new size: the same bytes as LibTorch's bicubic resize with antialiasing of a uint8
/// tensor. Work and memory are those of the rows that are asked for.
class FrameResizer {
 public:
  FrameResizer(PixelSize old_size, PixelSize new_size);

  /// Bytes from one row of a colour to the next in `rows`: the new width, padded.
  int64_t row_stride() const { return row_stride_; }

  /// Takes a picture of the old size, for rows [first, end) of the new one.
  void load(const Pixels& picture, int64_t first, int64_t end);
  /// Rows [first, end) of those that were loaded, as [row, colour, row_stride()].
  void rows(int64_t first, int64_t end, uint8_t* to) const;

 private:
  ResizeWeights across_;
  ResizeWeights down_;
  int64_t row_stride_;
  int64_t first_loaded_ = 0;       ///< of the old rows
  std::vector<uint8_t> narrowed_;  ///< old rows at the new width: [row, colour, row_stride_]
  std::vector<uint8_t> strip_;     ///< rows side by side, see frame_resizer.cpp
  std::vector<uint8_t> new_strip_;
};

/// A whole picture at another size.
Pixels resized(const Pixels& picture, PixelSize size);

}  // namespace weft
