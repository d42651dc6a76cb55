#pragma once

#include <cstdint>

namespace weft {

/// What is refused before memory is taken for it. A file's header can promise more pixels than any machine has memory.
struct MediaLimits {
  int64_t max_file_bytes = int64_t{512} << 20;
  int64_t max_pixels = 178'956'970;  ///< of one image; where Pillow refuses, too
  double max_seconds = 3600;         ///< of one clip
};

}  // namespace weft
