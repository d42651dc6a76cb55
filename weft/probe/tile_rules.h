#pragma once

#include "weft/probe/patch_rules.h"

namespace weft {

/// How a picture becomes tiles of one size: it is resized to a grid of them, and where that has several, the whole
/// picture follows as one more tile.
struct TileRules {
  PatchRules patches;  ///< of a tile, and how its values are made
  int64_t side = 448;  ///< pixels of a tile's
  int64_t min_tiles = 1;
  int64_t max_tiles = 12;

  bool operator==(const TileRules&) const = default;
};

struct TileGrid {
  int64_t rows = 1;
  int64_t columns = 1;

  /// With the one of the whole picture.
  int64_t num_tiles() const { return rows * columns + (rows * columns > 1 ? 1 : 0); }
  bool operator==(const TileGrid&) const = default;
};

/// The grid whose proportions are nearest to a picture's. Of several the one with more tiles, unless most of its pixels
/// would have to be made up.
TileGrid tile_grid(const TileRules& rules, PixelSize size);

/// The rules of a preprocessor_config.json ("image_processor" of a processor_config.json) or of the same of videos.
/// `rules` has what the file does not name; the size of tiles is the model's.
Result<TileRules> read_tile_rules(const Document& document, std::string_view part, TileRules rules,
                                  ProcessorNames processors);

}  // namespace weft
