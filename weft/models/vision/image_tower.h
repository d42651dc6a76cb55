#pragma once

#include "weft/models/module_network.h"

namespace weft {

/// Square images of one size → a row for the class and the patches of each, with learned positions → transformer →
/// squares of patches, merged and projected to the llm's width. Norms, scales and biases are there where the module has
/// them, so that it is CLIP's tower as well as others.
class ImageTower : public ModuleNetwork {
 public:
  ImageTower(const Module& module, const VisionNumbers& numbers, const BlockRange& blocks, ParameterMaker& maker);

  at::Tensor enter(const Inputs& inputs, const std::vector<MediaRows>& media, const RunContext& context) const override;
  LayerPass begin(const Inputs& inputs, at::ScalarType type) const override;
  at::Tensor leave(const LayerRows& rows, const Inputs& inputs, const RunContext& context,
                   const RunContext& outside) const override;

 private:
  at::Tensor project(const at::Tensor& x, const VisionInputs& inputs, const RunContext& context) const;

  VisionNumbers numbers_;
  OpParameters patch_embedding_;
  ParameterPtr class_token_;
  ParameterPtr positions_;               ///< nothing: places do not matter
  double dropout_ = 0;                   ///< of rows with their places
  std::optional<NormLayer> first_norm_;  ///< nothing: rows go into the first layer as they are
  std::optional<NormLayer> last_norm_;
  std::optional<NormLayer> merged_norm_;
  Activation activation_ = Activation::kGelu;
  OpParameters up_;
  OpParameters down_;
};

}  // namespace weft
