#include <numeric>

#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <fmt/format.h>

#include "weft/families/media/vision_index.h"
#include "weft/models/move_inputs.h"
#include "weft/models/vision/vision_inputs.h"

namespace weft {
namespace {

/// Every tile is a sequence, of a row without pixels and then its patches.
Result<VisionLayout> tile_layout(const VisionNumbers& numbers, const std::vector<Grid>& grids, const char* grid_field) {
  const int64_t side = numbers.tile_side;
  int64_t tiles = 0;
  for (size_t i = 0; i < grids.size(); ++i) {
    if (grids[i].h != side || grids[i].w != side) {
      return Error{.field = fmt::format("{}[{}]", grid_field, i),
                   .problem = fmt::format("is {}, but this model takes images as tiles of {} × {} patches",
                                          to_string(grids[i]), side, side),
                   .advice = "Prepare the images with this model's own processor."};
    }
    tiles += grids[i].t;
  }
  const int64_t patches = numbers.patches_per_tile(), rows = patches + 1;
  // A patch's place in the table of positions counts patches row by row, behind the class.
  WEFT_TRY(const std::vector<int64_t> places, patch_positions(std::vector<Grid>{{1, side, side}}, numbers.merge_size));
  std::vector<int64_t> place_of_row(1, 0);
  for (int64_t patch = 0; patch < patches; ++patch) {
    const auto at = static_cast<size_t>(2 * patch);
    place_of_row.push_back(1 + places[at] * side + places[at + 1]);
  }
  VisionLayout layout{
      .inputs = {.positions = at::tensor(place_of_row, at::kLong).repeat({tiles}).unsqueeze(1),
                 .frames = PackedSegments(std::vector<int64_t>(static_cast<size_t>(tiles), rows)),
                 .patch_rows = at::arange(tiles * rows, at::kLong).view({tiles, rows}).narrow(1, 1, patches).flatten(),
                 .num_rows = tiles * patches / (numbers.merge_size * numbers.merge_size)},
      .patches = {}};
  for (int64_t row = 0; row < tiles * rows; ++row)
    layout.patches.push_back(row % rows == 0 ? -1 : row / rows * patches + row % rows - 1);
  return layout;
}

/// Pixels of all patches in the order of a layout's rows.
at::Tensor arranged(const at::Tensor& pixels, const VisionLayout& layout) {
  if (layout.inputs.patch_rows.defined()) {
    at::Tensor rows = at::zeros({std::ssize(layout.patches), pixels.size(1)}, pixels.options());
    return rows.index_copy_(0, layout.inputs.patch_rows, pixels);
  }
  if (!layout.inputs.output_order.defined()) return pixels;
  return pixels.index_select(0, at::tensor(layout.patches, at::kLong));
}

const char* grid_field_of(std::string_view field) {
  return field == "pixel_values_videos" ? "video_grid_thw" : "image_grid_thw";
}

}  // namespace

Result<at::Tensor> patches_of_tiles(const VisionNumbers& numbers, const at::Tensor& pixels, std::string_view field) {
  const int64_t side = numbers.tile_side, patch = numbers.patch_size, merge = numbers.merge_size;
  const int64_t units = side / merge;
  if (pixels.dim() != 4 || pixels.size(1) != numbers.channels || pixels.size(2) != side * patch ||
      pixels.size(3) != side * patch) {
    return Error{.field = std::string(field),
                 .problem = fmt::format("has the shape {}, but images of this model are [tiles, {}, {}, {}]",
                                        fmt::join(pixels.sizes(), " × "), numbers.channels, side * patch, side * patch),
                 .advice = "Prepare the images with this model's own processor."};
  }
  return pixels.reshape({pixels.size(0), numbers.channels, units, merge, patch, units, merge, patch})
      .permute({0, 2, 5, 3, 6, 1, 4, 7})
      .reshape({pixels.size(0) * side * side, numbers.patch_elements()});
}

Result<VisionLayout> vision_layout(const VisionNumbers& numbers, const std::vector<Grid>& grids,
                                   std::string_view field) {
  const char* const grid_field = grid_field_of(field);
  WEFT_TRY(const int64_t patches, check_grids(grids, numbers.merge_size, grid_field));
  const at::Tensor no_pixels = at::empty({0, numbers.patch_elements()}, at::kFloat);
  if (numbers.tile_side > 0) {
    WEFT_TRY(VisionLayout layout, tile_layout(numbers, grids, grid_field));
    layout.inputs.pixels = no_pixels;
    layout.inputs.held = Range{};
    return layout;
  }
  const int64_t unit = numbers.merge_size * numbers.merge_size;
  WEFT_TRY(const std::vector<int64_t> positions, patch_positions(grids, numbers.merge_size));
  WEFT_TRY(const std::vector<int64_t> frames, frame_segments(grids, numbers.merge_size));
  VisionLayout layout{.inputs = {.pixels = no_pixels,
                                 .positions = at::tensor(positions, at::kLong).view({patches, 2}),
                                 .frames = PackedSegments(frames),
                                 .num_rows = patches / unit,
                                 .held = Range{}},
                      .patches = std::vector<int64_t>(static_cast<size_t>(patches))};
  std::iota(layout.patches.begin(), layout.patches.end(), 0);
  VisionInputs& inputs = layout.inputs;
  if (numbers.positions_per_side > 0) {
    WEFT_TRY(const PositionMix mix, position_mix(grids, numbers.merge_size, numbers.positions_per_side));
    inputs.mixed_entries = at::tensor(mix.entries, at::kLong).view({patches, -1});
    inputs.mixed_weights = at::tensor(mix.weights, at::kDouble).view({patches, -1});
  }
  if (numbers.window_size == 0) return layout;
  WEFT_TRY(const WindowOrder windows, window_order(grids, numbers.merge_size, numbers.window_size, numbers.patch_size));
  for (int64_t row = 0; row < patches; ++row)
    layout.patches[static_cast<size_t>(row)] = windows.order[static_cast<size_t>(row / unit)] * unit + row % unit;
  const at::Tensor order = at::tensor(layout.patches, at::kLong);
  for (at::Tensor* rows : {&inputs.positions, &inputs.mixed_entries, &inputs.mixed_weights}) {
    if (rows->defined()) *rows = rows->index_select(0, order);
  }
  inputs.windows = PackedSegments(windows.segments);
  inputs.output_order = at::tensor(windows.inverse, at::kLong);
  return layout;
}

Result<VisionInputs> prepare_vision(const VisionNumbers& numbers, const at::Tensor& pixels,
                                    const std::vector<Grid>& grids, std::string_view field) {
  WEFT_TRY(const int64_t patches, check_grids(grids, numbers.merge_size, grid_field_of(field)));
  if (pixels.dim() != 2 || pixels.size(1) != numbers.patch_elements()) {
    return Error{
        .field = std::string(field),
        .problem = fmt::format("has the shape {}, but a patch of this model has {} channels × {} frames × {} × {} "
                               "pixels, so [patches, {}] is needed",
                               fmt::join(pixels.sizes(), " × "), numbers.channels, numbers.temporal_patch_size,
                               numbers.patch_size, numbers.patch_size, numbers.patch_elements()),
        .advice = "Prepare the images with this model's own processor."};
  }
  if (pixels.size(0) != patches) {
    return Error{.field = std::string(field),
                 .problem = fmt::format("has {} rows, but the grids of {} images or videos have {} patches",
                                        pixels.size(0), grids.size(), patches),
                 .advice = "Give one row for every patch, and one grid for every image."};
  }
  WEFT_TRY(VisionLayout layout, vision_layout(numbers, grids, field));
  layout.inputs.pixels = arranged(pixels, layout);
  layout.inputs.held.reset();
  return std::move(layout.inputs);
}

VisionInputs VisionInputs::to(const at::TensorOptions& options) const {
  VisionInputs moved = *this;
  moved.pixels = moved_to(pixels, options);
  moved.positions = moved_to(positions, options.dtype(positions.dtype()));
  for (at::Tensor* own : {&moved.output_order, &moved.patch_rows, &moved.mixed_entries}) {
    if (own->defined()) *own = moved_to(*own, options.dtype(own->dtype()));
  }
  if (mixed_weights.defined()) {
    const bool is_double = c10::typeMetaToScalarType(options.dtype()) == at::kDouble;
    moved.mixed_weights = moved_to(mixed_weights, options.dtype(is_double ? at::kDouble : at::kFloat));
  }
  return moved;
}

}  // namespace weft
