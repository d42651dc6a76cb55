#pragma once

#include "weft/models/module_network.h"

namespace weft {

/// A language model: embedding, decoder layers, norm and head. Tokens of several samples are packed; a row sees what
/// came before in its own sample.
class Decoder : public ModuleNetwork {
 public:
  Decoder(const Module& module, const LlmNumbers& numbers, const BlockRange& blocks, ParameterMaker& maker);

  /// Embeddings of tokens, with media in the places of theirs.
  at::Tensor enter(const Inputs& inputs, const std::vector<MediaRows>& media, const RunContext& context) const override;
  LayerPass begin(const Inputs& inputs, at::ScalarType type) const override;
  /// The sum over the inputs' targets of the cross entropy.
  at::Tensor leave(const LayerRows& rows, const Inputs& inputs, const RunContext& context,
                   const RunContext& outside) const override;
  at::Tensor next_logits(const at::Tensor& x, const RunContext& context, const RunContext& one) const override;
  /// Undefined where this stage has neither the embedding nor a head that is tied to it.
  ParameterPtr table() const override { return embedding_; }
  bool is_tied() const override { return head_ && head_ == embedding_; }

  int64_t vocabulary() const { return vocabulary_; }
  /// Logits of this rank's part of the vocabulary, for all rows or for some.
  at::Tensor logits(const at::Tensor& x, const RunContext& context, const at::Tensor& rows = {}) const;
  /// The sum over the given rows of the cross entropy with their targets.
  at::Tensor loss_sum(const at::Tensor& x, const at::Tensor& rows, const at::Tensor& targets,
                      const RunContext& context) const;

 private:
  at::Tensor embed_tokens(const at::Tensor& ids, const std::vector<MediaRows>& media, const RunContext& context) const;

  LlmNumbers numbers_;
  int64_t vocabulary_ = 0;
  int64_t padding_id_ = -1;
  int64_t head_dim_ = 0;
  double dropout_ = 0;  ///< of embeddings
  bool turns_ = false;  ///< layers turn queries and keys
  ParameterPtr embedding_;
  ParameterPtr positions_;  ///< the table of learned positions, where there is one
  NormLayer norm_;
  ParameterPtr head_;  ///< the embedding itself where they are tied
};

}  // namespace weft
