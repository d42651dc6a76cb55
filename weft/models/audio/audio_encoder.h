#pragma once

#include "weft/models/module_network.h"

namespace weft {

/// Two convolutions of mel frames → transformer inside chunks → pairs of rows averaged → the llm's width.
class AudioEncoder : public ModuleNetwork {
 public:
  AudioEncoder(const Module& module, const BlockRange& blocks, ParameterMaker& maker);

  at::Tensor enter(const Inputs& inputs, const std::vector<MediaRows>& media, const RunContext& context) const override;
  LayerPass begin(const Inputs& inputs, at::ScalarType type) const override;
  at::Tensor leave(const LayerRows& rows, const Inputs& inputs, const RunContext& context,
                   const RunContext& outside) const override;

  at::Tensor convolve(const AudioInputs& inputs, const RunContext& context) const;
  /// `context` is how rows are run, `pooled` how the fewer ones are that come of them.
  at::Tensor pool(const at::Tensor& x, const AudioInputs& inputs, const RunContext& context,
                  const RunContext& pooled) const;

 private:
  OpParameters first_convolution_;
  OpParameters second_convolution_;
  NormLayer norm_;
  OpParameters projection_;
  ParameterPtr marks_;  ///< embeddings of a clip's begin and end, which files hold and nothing uses
};

}  // namespace weft
