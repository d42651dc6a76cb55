#pragma once

#include <vector>

#include "weft/prepare/patches.h"
#include "weft/prepare/pixels.h"
#include "weft/probe/tile_rules.h"

namespace weft {

/// Appends the patches of a picture's tiles, row of tiles by row, at the size of their grid, and behind several those
/// of the whole picture as one more tile. Patches of a tile are in the order of merged squares, value for value as
/// transformers' default processor makes them. Only those of a range, for which only rows of tiles that it needs are
/// worked on.
void prepare_tiles(const Pixels& picture, const TileRules& rules, PixelSize resized, PatchRange range,
                   std::vector<float>& patches);

/// Of all tiles of a picture that is resized so.
int64_t num_patches_of_tiles(const TileRules& rules, PixelSize resized);

}  // namespace weft
