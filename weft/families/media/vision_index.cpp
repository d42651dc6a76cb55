#include "weft/families/media/vision_index.h"

#include <algorithm>
#include <array>
#include <cmath>

#include <fmt/format.h>

namespace weft {
namespace {

void append_frame_positions(const Grid& grid, int64_t merge_size, std::vector<int64_t>& positions) {
  for (int64_t block_row = 0; block_row < grid.h; block_row += merge_size) {
    for (int64_t block_column = 0; block_column < grid.w; block_column += merge_size) {
      for (int64_t row = block_row; row < block_row + merge_size; ++row) {
        for (int64_t column = block_column; column < block_column + merge_size; ++column) {
          positions.push_back(row);
          positions.push_back(column);
        }
      }
    }
  }
}

/// Appends the windows of one frame of `rows` by `columns` units, the first of which is `first_unit`.
void append_windows(int64_t first_unit, int64_t rows, int64_t columns, int64_t window, int64_t patches_per_unit,
                    WindowOrder& windows) {
  for (int64_t top = 0; top < rows; top += window) {
    for (int64_t left = 0; left < columns; left += window) {
      const int64_t bottom = std::min(top + window, rows);
      const int64_t right = std::min(left + window, columns);
      for (int64_t row = top; row < bottom; ++row) {
        for (int64_t column = left; column < right; ++column) {
          windows.order.push_back(first_unit + row * columns + column);
        }
      }
      windows.segments.push_back((bottom - top) * (right - left) * patches_per_unit);
    }
  }
}

/// The two learned positions around one of `size` along a side, and how much of each it has.
struct AxisMix {
  std::array<int64_t, 2> entries;
  std::array<double, 2> weights;
};

AxisMix axis_mix(int64_t index, int64_t size, int64_t per_side) {
  const double place =
      static_cast<double>(index * (per_side - 1)) / static_cast<double>(std::max<int64_t>(size - 1, 1));
  const double below = std::floor(place);
  const auto first = static_cast<int64_t>(below);
  const double share = place - below;
  return {{first, std::min(first + 1, per_side - 1)}, {1 - share, share}};
}

}  // namespace

Result<PositionMix> position_mix(std::span<const Grid> grids, int64_t merge_size, int64_t positions_per_side) {
  WEFT_TRY(const std::vector<int64_t> positions, patch_positions(grids, merge_size));
  PositionMix mix;
  mix.entries.reserve(2 * positions.size());
  mix.weights.reserve(2 * positions.size());
  size_t next = 0;
  for (const Grid& grid : grids) {
    for (int64_t patch = 0; patch < num_patches(grid); ++patch, next += 2) {
      const AxisMix rows = axis_mix(positions[next], grid.h, positions_per_side);
      const AxisMix columns = axis_mix(positions[next + 1], grid.w, positions_per_side);
      for (size_t row = 0; row < 2; ++row) {
        for (size_t column = 0; column < 2; ++column) {
          mix.entries.push_back(rows.entries[row] * positions_per_side + columns.entries[column]);
          mix.weights.push_back(rows.weights[row] * columns.weights[column]);
        }
      }
    }
  }
  return mix;
}

Result<std::vector<int64_t>> patch_positions(std::span<const Grid> grids, int64_t merge_size) {
  WEFT_TRY(const int64_t patches, check_grids(grids, merge_size, "grids"));
  std::vector<int64_t> positions;
  positions.reserve(static_cast<size_t>(2 * patches));
  for (const Grid& grid : grids) {
    for (int64_t frame = 0; frame < grid.t; ++frame) append_frame_positions(grid, merge_size, positions);
  }
  return positions;
}

Result<std::vector<int64_t>> frame_segments(std::span<const Grid> grids, int64_t merge_size) {
  WEFT_TRY([[maybe_unused]] const int64_t patches, check_grids(grids, merge_size, "grids"));
  std::vector<int64_t> segments;
  for (const Grid& grid : grids) segments.insert(segments.end(), static_cast<size_t>(grid.t), grid.h * grid.w);
  return segments;
}

Result<WindowOrder> window_order(std::span<const Grid> grids, int64_t merge_size, int64_t window_size,
                                 int64_t patch_size) {
  WEFT_TRY(const int64_t patches, check_grids(grids, merge_size, "grids"));
  WEFT_CHECK(patch_size >= 1, "the patch size is {}", patch_size);
  const int64_t window = window_size / merge_size / patch_size;
  if (window < 1) {
    return Error{.field = "vision_config.window_size",
                 .problem = fmt::format("a window of {} pixels; at least merge size {} times patch size {} are needed",
                                        window_size, merge_size, patch_size),
                 .advice = "Take the window size from the model's published configuration."};
  }
  const int64_t patches_per_unit = merge_size * merge_size;
  WindowOrder windows;
  windows.order.reserve(static_cast<size_t>(patches / patches_per_unit));
  for (const Grid& grid : grids) {
    for (int64_t frame = 0; frame < grid.t; ++frame) {
      append_windows(static_cast<int64_t>(windows.order.size()), grid.h / merge_size, grid.w / merge_size, window,
                     patches_per_unit, windows);
    }
  }
  windows.inverse.resize(windows.order.size());
  for (size_t place = 0; place < windows.order.size(); ++place) {
    windows.inverse[static_cast<size_t>(windows.order[place])] = static_cast<int64_t>(place);
  }
  return windows;
}

}  // namespace weft
