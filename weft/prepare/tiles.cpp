#include "weft/prepare/tiles.h"

#include <algorithm>
#include <span>

#include "weft/base/check.h"

namespace weft {
namespace {

/// Rows of merged squares [begin, end) of a picture at another size, as patches.
std::vector<float> patches_of(const Pixels& picture, const PatchRules& rules, PixelSize size, PatchRange rows) {
  const int64_t per_row = size.width / rules.factor() * rules.merge * rules.merge;
  std::vector<float> patches(static_cast<size_t>(rows.size() * per_row * rules.values_per_patch()));
  const Pixels* frame = &picture;
  prepare_patches(std::span(&frame, 1), rules, size, {.begin = rows.begin * per_row, .end = rows.end * per_row},
                  patches);
  return patches;
}

int64_t patches_per_tile(const TileRules& rules) {
  return patch_grid(rules.patches, {rules.side, rules.side}, 1).num_patches();
}

}  // namespace

int64_t num_patches_of_tiles(const TileRules& rules, PixelSize resized) {
  const TileGrid grid{.rows = resized.height / rules.side, .columns = resized.width / rules.side};
  return grid.num_tiles() * patches_per_tile(rules);
}

void prepare_tiles(const Pixels& picture, const TileRules& rules, PixelSize resized, PatchRange range,
                   std::vector<float>& patches) {
  WEFT_CHECK(resized.height % rules.side == 0 && resized.width % rules.side == 0, "a grid of {} by {} pixels",
             resized.width, resized.height);
  const int64_t columns = resized.width / rules.side, tiles = resized.height / rules.side * columns;
  const int64_t per_tile = patches_per_tile(rules), width = rules.patches.values_per_patch();
  const int64_t bands = rules.side / rules.patches.factor(), run = per_tile / bands;
  // Appends what the range has of patches that lie in one piece from `first` on.
  const auto append = [&](int64_t first, int64_t count, const float* from) {
    const int64_t begin = std::max(range.begin, first), end = std::min(range.end, first + count);
    if (begin < end) patches.insert(patches.end(), from + (begin - first) * width, from + (end - first) * width);
  };
  const int64_t first_tile = range.begin / per_tile, end_tile = std::min(tiles, (range.end + per_tile - 1) / per_tile);
  if (first_tile < end_tile) {
    const PatchRange rows{.begin = first_tile / columns * bands, .end = ((end_tile - 1) / columns + 1) * bands};
    const std::vector<float> all = patches_of(picture, rules.patches, resized, rows);
    // A row of merged squares of the whole grid is one of each of its columns of tiles, one after the other.
    for (int64_t tile = first_tile; tile < end_tile; ++tile) {
      for (int64_t band = 0; band < bands; ++band) {
        const int64_t piece = (tile / columns * bands + band - rows.begin) * columns + tile % columns;
        append(tile * per_tile + band * run, run, all.data() + piece * run * width);
      }
    }
  }
  if (tiles == 1 || range.end <= tiles * per_tile) return;
  append(tiles * per_tile, per_tile,
         patches_of(picture, rules.patches, {rules.side, rules.side}, {.begin = 0, .end = bands}).data());
}

}  // namespace weft
