#pragma once

#include "weft/models/module_network.h"

namespace weft {

/// Patches → rotary transformer → squares of patches merged into rows of the llm's width. Where earlier layers have
/// mergers of their own, what they give stands behind these in every row.
class VisionEncoder : public ModuleNetwork {
 public:
  VisionEncoder(const Module& module, const VisionNumbers& numbers, const BlockRange& blocks, ParameterMaker& maker);

  const VisionNumbers& numbers() const { return numbers_; }

  at::Tensor enter(const Inputs& inputs, const std::vector<MediaRows>& media, const RunContext& context) const override;
  LayerPass begin(const Inputs& inputs, at::ScalarType type) const override;
  at::Tensor leave(const LayerRows& rows, const Inputs& inputs, const RunContext& context,
                   const RunContext& outside) const override;

  at::Tensor embed_patches(const VisionInputs& inputs, const RunContext& context) const;
  RotaryTable rotary(const at::Tensor& positions, at::ScalarType type) const;
  /// The last layer's rows merged. `context` is how patches are run, `merged` how the fewer rows are that come of them.
  at::Tensor merge(const at::Tensor& x, const VisionInputs& inputs, const RunContext& context,
                   const RunContext& merged) const {
    return merge(mergers_.front(), x, inputs, context, merged);
  }

 private:
  struct Merger {
    NormLayer norm;
    MlpLayer mlp;
    bool norms_merged = false;  ///< the norm is of merged rows, not of patches
  };
  static Merger make_merger(const OpParameterMaker& exit, const std::string& norm, const std::string& mlp);
  static at::Tensor merge(const Merger& merger, const at::Tensor& x, const VisionInputs& inputs,
                          const RunContext& context, const RunContext& merged);

  VisionNumbers numbers_;
  int64_t head_dim_ = 0;
  OpParameters patch_embedding_;
  ParameterPtr positions_;       ///< a square of learned ones, where there is one
  std::vector<Merger> mergers_;  ///< of the last layer's rows, then of branches
};

}  // namespace weft
