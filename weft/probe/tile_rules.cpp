#include "weft/probe/tile_rules.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include <fmt/format.h>

#include "weft/probe/processor_fields.h"

namespace weft {

TileGrid tile_grid(const TileRules& rules, PixelSize size) {
  const auto height = static_cast<double>(size.height), width = static_cast<double>(size.width);
  const double proportion = width / height, tile = static_cast<double>(rules.side * rules.side);
  TileGrid best;
  double nearest = std::numeric_limits<double>::infinity();
  for (int64_t tiles = rules.min_tiles; tiles <= rules.max_tiles; ++tiles) {
    for (int64_t columns = 1; columns <= tiles; ++columns) {
      if (tiles % columns != 0) continue;
      const TileGrid grid{.rows = tiles / columns, .columns = columns};
      const double distance = std::abs(proportion - static_cast<double>(grid.columns) / static_cast<double>(grid.rows));
      const bool is_filled = height * width > 0.5 * tile * static_cast<double>(tiles);
      if (distance < nearest || (distance == nearest && is_filled)) best = grid;
      nearest = std::min(nearest, distance);
    }
  }
  return best;
}

Result<TileRules> read_tile_rules(const Document& document, std::string_view part, TileRules rules,
                                  ProcessorNames processors) {
  constexpr IntegerRange kTileRange{1, 1024};
  constexpr IntegerRange kSideRange{1, 1 << 16};
  Findings findings(document.source);
  Fields root(document, findings);
  Fields fields = root.has(part) ? root.object(part) : root;
  check_processor(fields, processors);
  if (fields.has("size")) {
    Fields size = fields.object("size");
    for (const char* key : {"height", "width"}) {
      if (const int64_t side = size.integer_or(key, rules.side, kSideRange); side != rules.side)
        size.complain(key, fmt::format("is {}, but the model's images have {} pixels a side", side, rules.side),
                      "Take the files of the model that is used.");
    }
  }
  rules.min_tiles = fields.integer_or("min_patches", rules.min_tiles, kTileRange);
  rules.max_tiles = fields.integer_or("max_patches", rules.max_tiles, kTileRange);
  if (rules.max_tiles < rules.min_tiles) {
    fields.complain("max_patches", fmt::format("{} is below the {} of min_patches", rules.max_tiles, rules.min_tiles));
  }
  read_pixel_values(fields, rules.patches);
  if (findings.first()) return *findings.first();
  return rules;
}

}  // namespace weft
