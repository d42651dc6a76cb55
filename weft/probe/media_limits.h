#pragma once

#include <cstdint>

namespace weft {

/// What is refused before memory is taken for it. A file's header can promise more pixels than any machine has memory.
struct MediaLimits {
  int64_t max_file_bytes = int64_t{512} << 20;
  int64_t max_pixels = 178'956'970;  ///< of one image; where Pillow refuses, too
  /// Of one image. Resizing holds strips as long as a side. A picture of max_pixels, two hundred times as long as wide,
  /// has less; longer ones most models refuse.
  int64_t max_side = 200'000;
  double max_seconds = 3600;  ///< of one clip
};

}  // namespace weft
