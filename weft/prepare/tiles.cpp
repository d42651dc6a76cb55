#include "weft/prepare/tiles.h"

#include <span>

#include "weft/base/check.h"
#include "weft/prepare/patches.h"

namespace weft {
namespace {

/// Patches of a picture at another size.
std::vector<float> patches_of(const Pixels& picture, const PatchRules& rules, PixelSize size) {
  const int64_t count = patch_grid(rules, size, 1).num_patches();
  std::vector<float> patches(static_cast<size_t>(count * rules.values_per_patch()));
  const Pixels* frame = &picture;
  prepare_patches(std::span(&frame, 1), rules, size, {.begin = 0, .end = count}, patches);
  return patches;
}

}  // namespace

void prepare_tiles(const Pixels& picture, const TileRules& rules, PixelSize resized, std::vector<float>& patches) {
  WEFT_CHECK(resized.height % rules.side == 0 && resized.width % rules.side == 0, "a grid of {} by {} pixels",
             resized.width, resized.height);
  const int64_t rows = resized.height / rules.side, columns = resized.width / rules.side;
  const std::vector<float> all = patches_of(picture, rules.patches, resized);
  // A row of merged squares of the whole grid is one of each of its columns of tiles, one after the other.
  const int64_t bands = rules.side / rules.patches.factor();
  const int64_t run = bands * rules.patches.merge * rules.patches.merge * rules.patches.values_per_patch();
  for (int64_t tile = 0; tile < rows * columns; ++tile) {
    for (int64_t band = 0; band < bands; ++band) {
      const auto from = all.begin() + ((tile / columns * bands + band) * columns + tile % columns) * run;
      patches.insert(patches.end(), from, from + run);
    }
  }
  if (rows * columns == 1) return;
  const std::vector<float> whole = patches_of(picture, rules.patches, {rules.side, rules.side});
  patches.insert(patches.end(), whole.begin(), whole.end());
}

}  // namespace weft
