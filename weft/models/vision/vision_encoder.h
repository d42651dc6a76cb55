#pragma once

#include <string>
#include <vector>

#include "weft/layers/transformer_layer.h"
#include "weft/models/block_range.h"
#include "weft/models/numbers.h"
#include "weft/spec/model.h"

namespace weft {

/// Images and videos as the vision encoder takes them: the patches of all, packed, in the order of its attention.
struct VisionInputs {
  at::Tensor pixels;        ///< [patches, channels · temporal patch · patch²]
  at::Tensor positions;     ///< [patches, 2]: row and column of each
  PackedSegments frames;    ///< who sees whom in layers with full attention
  PackedSegments windows;   ///< and in the others
  at::Tensor output_order;  ///< which output row comes at each place; undefined where they are in order
  int64_t num_rows = 0;     ///< that the encoder gives

  VisionInputs to(const at::TensorOptions& options) const;
};

/// Checks pixels [patches, patch elements] against grids and puts them into the encoder's order. `field` is what errors
/// call the pixels.
Result<VisionInputs> prepare_vision(const VisionNumbers& numbers, const at::Tensor& pixels,
                                    const std::vector<Grid>& grids, std::string_view field);

/// Qwen's vision encoders: patches → rotary transformer → merged rows of the llm's width.
class VisionEncoder {
 public:
  VisionEncoder(const Module& module, const VisionNumbers& numbers, const std::string& prefix, const BlockRange& blocks,
                ParameterMaker& maker);

  const VisionNumbers& numbers() const { return numbers_; }
  int64_t num_layers() const { return static_cast<int64_t>(layers_.size()); }
  std::vector<TransformerLayer>& layers() { return layers_; }

  at::Tensor embed_patches(const VisionInputs& inputs, const RunContext& context) const;
  RotaryTable rotary(const at::Tensor& positions, at::ScalarType type) const;
  /// `shared` is how patches are shared out to ranks; null where all are here.
  at::Tensor layer(int64_t index, const at::Tensor& x, const VisionInputs& inputs, const RotaryTable& rotary,
                   const RunContext& context, const ContextRows* shared = nullptr) const;
  /// `context` is how patches are run, `merged` how the fewer rows are that come of them.
  at::Tensor merge(const at::Tensor& x, const VisionInputs& inputs, const RunContext& context,
                   const RunContext& merged) const;

 private:
  VisionNumbers numbers_;
  int64_t head_dim_ = 0;
  ParameterPtr patch_embedding_;
  std::vector<TransformerLayer> layers_;
  std::vector<bool> is_windowed_;
  NormLayer norm_;
  MlpLayer merger_;
};

}  // namespace weft
