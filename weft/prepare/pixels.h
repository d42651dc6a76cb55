#pragma once

#include <cstdint>
#include <vector>

namespace weft {

/// A decoded picture: rows from the top, of pixels from the left, of red, green and blue.
struct Pixels {
  int64_t height = 0;
  int64_t width = 0;
  std::vector<uint8_t> rgb;

  const uint8_t* row(int64_t y) const { return rgb.data() + y * width * 3; }
  uint8_t* row(int64_t y) { return rgb.data() + y * width * 3; }
};

}  // namespace weft
