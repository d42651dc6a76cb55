#include "weft/families/media/grid.h"

#include <fmt/format.h>

namespace weft {
namespace {

Result<int64_t> check_grid(const Grid& grid, int64_t merge_size, const std::string& field) {
  if (grid.t < 1 || grid.h < 1 || grid.w < 1) {
    return Error{.field = field,
                 .problem = fmt::format("the grid is {}; frames, rows and columns are at least 1", to_string(grid)),
                 .advice = "Take the grid from the prepared image or video: frames, rows and columns in patches."};
  }
  if (grid.h % merge_size != 0 || grid.w % merge_size != 0) {
    return Error{.field = field,
                 .problem = fmt::format("the grid is {}; rows and columns are multiples of the merge size {}",
                                        to_string(grid), merge_size),
                 .advice = fmt::format("Resize the picture so that its sides are multiples of patch size times {}.",
                                       merge_size)};
  }
  if (grid.t > kMaxPatches || grid.h > kMaxPatches / grid.t || grid.w > kMaxPatches / (grid.t * grid.h)) {
    return Error{.field = field,
                 .problem = fmt::format("the grid is {}; at most {} patches are allowed", to_string(grid), kMaxPatches),
                 .advice = "Use a smaller resolution or fewer frames."};
  }
  return num_patches(grid);
}

}  // namespace

int64_t num_patches(const Grid& grid) {
  return grid.t * grid.h * grid.w;
}

int64_t num_merged_tokens(const Grid& grid, int64_t merge_size) {
  return grid.t * (grid.h / merge_size) * (grid.w / merge_size);
}

std::string to_string(const Grid& grid) {
  return fmt::format("{} x {} x {}", grid.t, grid.h, grid.w);
}

Result<int64_t> check_grids(std::span<const Grid> grids, int64_t merge_size, std::string_view field) {
  WEFT_CHECK(merge_size >= 1, "the merge size is {}", merge_size);
  int64_t total = 0;
  for (size_t i = 0; i < grids.size(); ++i) {
    WEFT_TRY(const int64_t patches, check_grid(grids[i], merge_size, fmt::format("{}[{}]", field, i)));
    if (patches > kMaxPatches - total) {
      return Error{.field = fmt::format("{}[{}]", field, i),
                   .problem = fmt::format("with the grid {} there are {} patches; at most {} are allowed",
                                          to_string(grids[i]), total + patches, kMaxPatches),
                   .advice = "Put fewer pictures together."};
    }
    total += patches;
  }
  return total;
}

}  // namespace weft
