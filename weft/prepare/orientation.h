#pragma once

#include "weft/prepare/pixels.h"

namespace weft {

/// The picture turned and mirrored as EXIF's orientation (1 to 8) asks.
Pixels oriented(Pixels picture, int orientation);

}  // namespace weft
