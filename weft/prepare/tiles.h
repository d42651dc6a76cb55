#pragma once

#include <vector>

#include "weft/prepare/pixels.h"
#include "weft/probe/tile_rules.h"

namespace weft {

/// Appends the patches of a picture's tiles, row of tiles by row, at the size of their grid, and behind several those
/// of the whole picture as one more tile. Patches of a tile are in the order of merged squares, value for value as
/// transformers' default processor makes them.
void prepare_tiles(const Pixels& picture, const TileRules& rules, PixelSize resized, std::vector<float>& patches);

}  // namespace weft
