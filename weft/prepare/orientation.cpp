#include "weft/prepare/orientation.h"

#include <cstring>

namespace weft {

Pixels oriented(Pixels picture, int orientation) {
  if (orientation <= 1 || orientation > 8) return picture;
  const bool turned = orientation >= 5;
  Pixels to{.height = turned ? picture.width : picture.height, .width = turned ? picture.height : picture.width};
  to.rgb.resize(picture.rgb.size());
  const int64_t last_row = picture.height - 1, last_column = picture.width - 1;
  // Which rows and columns of the old picture the new one's axes follow, and whether backwards.
  const bool from_bottom = orientation == 3 || orientation == 4 || orientation == 6 || orientation == 7;
  const bool from_right = orientation == 2 || orientation == 3 || orientation == 7 || orientation == 8;
  for (int64_t y = 0; y < to.height; ++y) {
    uint8_t* out = to.row(y);
    for (int64_t x = 0; x < to.width; ++x, out += 3) {
      const int64_t row = turned ? x : y, column = turned ? y : x;
      const uint8_t* in =
          picture.row(from_bottom ? last_row - row : row) + (from_right ? last_column - column : column) * 3;
      std::memcpy(out, in, 3);
    }
  }
  return to;
}

}  // namespace weft
