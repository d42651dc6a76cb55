#include <ATen/ops/tensor.h>
#include <fmt/format.h>

#include "weft/families/media/vision_index.h"
#include "weft/models/move_inputs.h"
#include "weft/models/vision/vision_inputs.h"

namespace weft {

Result<VisionInputs> prepare_vision(const VisionNumbers& numbers, const at::Tensor& pixels,
                                    const std::vector<Grid>& grids, std::string_view field) {
  const char* const grid_field = field == "pixel_values_videos" ? "video_grid_thw" : "image_grid_thw";
  WEFT_TRY(const int64_t patches, check_grids(grids, numbers.merge_size, grid_field));
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
  const int64_t unit = numbers.merge_size * numbers.merge_size;
  WEFT_TRY(const std::vector<int64_t> positions, patch_positions(grids, numbers.merge_size));
  WEFT_TRY(const std::vector<int64_t> frames, frame_segments(grids, numbers.merge_size));
  VisionInputs inputs{.pixels = pixels,
                      .positions = at::tensor(positions, at::kLong).view({patches, 2}),
                      .frames = PackedSegments(frames),
                      .num_rows = patches / unit};
  if (numbers.positions_per_side > 0) {
    WEFT_TRY(const PositionMix mix, position_mix(grids, numbers.merge_size, numbers.positions_per_side));
    inputs.mixed_entries = at::tensor(mix.entries, at::kLong).view({patches, -1});
    inputs.mixed_weights = at::tensor(mix.weights, at::kDouble).view({patches, -1});
  }
  if (numbers.window_size > 0) {
    WEFT_TRY(const WindowOrder windows,
             window_order(grids, numbers.merge_size, numbers.window_size, numbers.patch_size));
    const at::Tensor order = at::tensor(windows.order, at::kLong);
    const auto by_unit = [&](const at::Tensor& rows) {
      return rows.view({patches / unit, unit, rows.size(1)}).index_select(0, order).view({patches, rows.size(1)});
    };
    inputs.pixels = by_unit(pixels);
    inputs.positions = by_unit(inputs.positions);
    for (at::Tensor* mixed : {&inputs.mixed_entries, &inputs.mixed_weights}) {
      if (mixed->defined()) *mixed = by_unit(*mixed);
    }
    inputs.windows = PackedSegments(windows.segments);
    inputs.output_order = at::tensor(windows.inverse, at::kLong);
  }
  return inputs;
}

VisionInputs VisionInputs::to(const at::TensorOptions& options) const {
  VisionInputs moved = *this;
  moved.pixels = moved_to(pixels, options);
  moved.positions = moved_to(positions, options.dtype(positions.dtype()));
  for (at::Tensor* own : {&moved.output_order, &moved.mixed_entries}) {
    if (own->defined()) *own = moved_to(*own, options.dtype(own->dtype()));
  }
  if (mixed_weights.defined()) {
    const bool is_double = c10::typeMetaToScalarType(options.dtype()) == at::kDouble;
    moved.mixed_weights = moved_to(mixed_weights, options.dtype(is_double ? at::kDouble : at::kFloat));
  }
  return moved;
}

}  // namespace weft
