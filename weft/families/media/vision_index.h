#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "weft/base/result.h"
#include "weft/families/media/grid.h"

namespace weft {

/// [patches, 2]: row and column in its frame of every patch, for the vision encoder's rotary embedding. A frame's
/// patches come block by block of `merge_size` by `merge_size`, row by row within each, so that the patches which are
/// merged stand together.
Result<std::vector<int64_t>> patch_positions(std::span<const Grid> grids, int64_t merge_size);

/// Patches of each frame of each grid: those attend to each other.
Result<std::vector<int64_t>> frame_segments(std::span<const Grid> grids, int64_t merge_size);

/// Where patches lie between the learned positions of a square: of every patch the four around it, and how much of each
/// it has.
struct PositionMix {
  std::vector<int64_t> entries;  ///< [patches, 4]: row by row of the square
  std::vector<double> weights;   ///< [patches, 4]
};

/// A frame's corners are the square's; in between, positions are a mixture by distance.
Result<PositionMix> position_mix(std::span<const Grid> grids, int64_t merge_size, int64_t positions_per_side);

/// Merge units (the blocks of patches that become one token) in the order of windowed attention.
struct WindowOrder {
  std::vector<int64_t> order;     ///< at place i of the new order stands unit order[i]
  std::vector<int64_t> inverse;   ///< unit i stands at place inverse[i]
  std::vector<int64_t> segments;  ///< patches of each window, none of them empty
};

/// Frames cut into windows of `window_size` by `window_size` pixels, those at the right and lower edge smaller.
Result<WindowOrder> window_order(std::span<const Grid> grids, int64_t merge_size, int64_t window_size,
                                 int64_t patch_size);

}  // namespace weft
