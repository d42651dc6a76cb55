#pragma once

#include <string>
#include <vector>

#include "weft/layers/transformer_layer.h"
#include "weft/models/block_range.h"
#include "weft/models/numbers.h"
#include "weft/spec/model.h"

namespace weft {

/// Audio clips as the encoder takes them: log-mel frames of all, packed, and which of them each convolution sees.
struct AudioInputs {
  at::Tensor frames;         ///< [frames, mel bins]
  at::Tensor first_taps;     ///< [3 · frames]: the frames around each; `frames` itself where there is none
  at::Tensor second_taps;    ///< [3 · rows]: the same for every second one
  at::Tensor row_positions;  ///< [rows]: of each row in its chunk
  PackedSegments chunks;     ///< who sees whom
  at::Tensor pooled_rows;    ///< [tokens]: the first of the two rows that become one
  int64_t num_rows = 0;      ///< that the encoder gives

  AudioInputs to(const at::TensorOptions& options) const;
};

/// Checks log-mel features [mel bins, frames] against the clips' lengths. `field` is what errors call the features.
Result<AudioInputs> prepare_audio(const AudioNumbers& numbers, const at::Tensor& features,
                                  const std::vector<int64_t>& clip_frames, std::string_view field);

/// Qwen2.5-Omni's audio encoder: two convolutions → transformer inside chunks → pairs of rows averaged → the llm's
/// width.
class AudioEncoder {
 public:
  AudioEncoder(const Module& module, const AudioNumbers& numbers, const std::string& prefix, const BlockRange& blocks,
               ParameterMaker& maker);

  const AudioNumbers& numbers() const { return numbers_; }
  int64_t num_layers() const { return static_cast<int64_t>(layers_.size()); }
  std::vector<TransformerLayer>& layers() { return layers_; }

  at::Tensor convolve(const AudioInputs& inputs, const RunContext& context) const;
  /// `shared` is how rows are shared out to ranks; null where all are here.
  at::Tensor layer(int64_t index, const at::Tensor& x, const AudioInputs& inputs, const RunContext& context,
                   const ContextRows* shared = nullptr) const;
  /// `context` is how rows are run, `pooled` how the fewer ones are that come of them.
  at::Tensor pool(const at::Tensor& x, const AudioInputs& inputs, const RunContext& context,
                  const RunContext& pooled) const;

 private:
  AudioNumbers numbers_;
  ParameterPtr first_convolution_;
  ParameterPtr first_bias_;
  ParameterPtr second_convolution_;
  ParameterPtr second_bias_;
  std::vector<TransformerLayer> layers_;
  NormLayer norm_;
  ParameterPtr projection_;
  ParameterPtr projection_bias_;
  ParameterPtr marks_;  ///< embeddings of a clip's begin and end, which files hold and the thinker does not use
};

}  // namespace weft
