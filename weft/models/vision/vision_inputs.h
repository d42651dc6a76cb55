#pragma once

#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include <ATen/core/Tensor.h>

#include "weft/base/result.h"
#include "weft/families/numbers.h"
#include "weft/layers/dropout.h"
#include "weft/mesh/box.h"
#include "weft/mesh/segments.h"

namespace weft {

/// Images and videos as the vision encoder takes them: the patches of all, packed, in the order of its attention.
struct VisionInputs {
  /// [patches, channels · temporal patch · patch²]. Images that are tiles have a row of zeros in front of their
  /// patches.
  at::Tensor pixels;
  at::Tensor positions;      ///< [patches, 2]: row and column of each; of tiles [rows, 1]: the place in a table
  at::Tensor mixed_entries;  ///< [patches, 4]: the learned positions around each; undefined where there are none
  at::Tensor mixed_weights;  ///< [patches, 4]: how much of each it has; exact, where pixels are of half precision
  PackedSegments frames;     ///< who sees whom in layers with full attention
  PackedSegments windows;    ///< and in the others
  at::Tensor patch_rows;     ///< of tiles: the rows that are patches, unit by unit; undefined where all are
  at::Tensor output_order;   ///< which output row comes at each place; undefined where they are in order
  int64_t num_rows = 0;      ///< that the encoder gives
  /// The rows of all that `pixels` has, where it has only those that a rank takes in, or none.
  std::optional<Range> held = std::nullopt;
  std::shared_ptr<const DropoutDraws> draws = nullptr;  ///< of the rows here; nothing: nothing is dropped

  VisionInputs to(const at::TensorOptions& options) const;
};

/// Pixels [tiles, channels, height, width] as patches [patches, patch elements], in the order in which they are merged.
/// They must be tiles of this model.
Result<at::Tensor> patches_of_tiles(const VisionNumbers& numbers, const at::Tensor& pixels, std::string_view field);

/// Where the patches of images and videos lie in a batch, before any pixels are there.
struct VisionLayout {
  VisionInputs inputs;           ///< that holds no pixels
  std::vector<int64_t> patches;  ///< by row, which patch of all grids it has; -1: none
};
Result<VisionLayout> vision_layout(const VisionNumbers& numbers, const std::vector<Grid>& grids,
                                   std::string_view field);

/// Checks pixels [patches, patch elements] against grids and puts them into the encoder's order. `field` is what errors
/// call the pixels.
Result<VisionInputs> prepare_vision(const VisionNumbers& numbers, const at::Tensor& pixels,
                                    const std::vector<Grid>& grids, std::string_view field);

}  // namespace weft
