#pragma once

#include "weft/models/module_network.h"

namespace weft {

/// Patches → rotary transformer → squares of patches merged into rows of the llm's width.
class VisionEncoder : public ModuleNetwork {
 public:
  VisionEncoder(const Module& module, const VisionNumbers& numbers, const BlockRange& blocks, ParameterMaker& maker);

  const VisionNumbers& numbers() const { return numbers_; }

  at::Tensor enter(const Inputs& inputs, const std::vector<MediaRows>& media, const RunContext& context) const override;
  LayerPass begin(const Inputs& inputs, at::ScalarType type) const override;
  at::Tensor leave(const at::Tensor& x, const Inputs& inputs, const RunContext& context,
                   const RunContext& outside) const override;

  at::Tensor embed_patches(const VisionInputs& inputs, const RunContext& context) const;
  RotaryTable rotary(const at::Tensor& positions, at::ScalarType type) const;
  /// `context` is how patches are run, `merged` how the fewer rows are that come of them.
  at::Tensor merge(const at::Tensor& x, const VisionInputs& inputs, const RunContext& context,
                   const RunContext& merged) const;

 private:
  VisionNumbers numbers_;
  int64_t head_dim_ = 0;
  OpParameters patch_embedding_;
  NormLayer norm_;
  MlpLayer merger_;
};

}  // namespace weft
