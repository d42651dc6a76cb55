#pragma once

#include <string>
#include <vector>

#include "weft/layers/transformer_layer.h"
#include "weft/models/block_range.h"
#include "weft/models/numbers.h"
#include "weft/spec/model.h"

namespace weft {

/// Rows that an encoder hands to the language model, and the token rows that they replace.
struct MediaRows {
  at::Tensor positions;  ///< [rows], in the packed tokens
  at::Tensor rows;       ///< [rows, width]
  bool is_own = false;   ///< positions are in this rank's own rows between blocks, and these rows for them alone
};

/// The language model of every family: embedding, decoder layers, norm and head. Tokens of several samples are packed;
/// a row sees what came before in its own sample.
class Decoder {
 public:
  Decoder(const Module& module, const TextNumbers& numbers, bool has_tied_embeddings, const std::string& prefix,
          const BlockRange& blocks, ParameterMaker& maker);

  const TextNumbers& numbers() const { return numbers_; }
  int64_t num_layers() const { return static_cast<int64_t>(layers_.size()); }
  int64_t vocabulary() const { return vocabulary_; }
  int64_t head_dim() const { return head_dim_; }

  at::Tensor embed_tokens(const at::Tensor& ids, const std::vector<MediaRows>& media, const RunContext& context) const;
  /// For positions [axes, rows], to be handed to every layer.
  RotaryTable rotary(const at::Tensor& positions, at::ScalarType type) const;
  /// Layer `index` of those that are here.
  at::Tensor layer(int64_t index, const at::Tensor& x, const AttentionCall& call, const RunContext& context) const;
  const TransformerLayer& layer(int64_t index) const { return layers_[static_cast<size_t>(index)]; }
  /// Undefined where this stage has neither the embedding nor a head that is tied to it.
  ParameterPtr embedding() const { return embedding_; }
  /// Whether the head here is the embedding.
  bool is_tied() const { return head_ && head_ == embedding_; }
  /// To tell each how many heads it has where they are dealt out over ranks.
  std::vector<TransformerLayer>& layers() { return layers_; }
  /// Logits of this rank's part of the vocabulary, for all rows or for some.
  at::Tensor logits(const at::Tensor& x, const RunContext& context, const at::Tensor& rows = {}) const;
  /// The sum over the given rows of the cross entropy with their targets.
  at::Tensor loss_sum(const at::Tensor& x, const at::Tensor& rows, const at::Tensor& targets,
                      const RunContext& context) const;

 private:
  TextNumbers numbers_;
  int64_t vocabulary_ = 0;
  int64_t head_dim_ = 0;
  ParameterPtr embedding_;
  std::vector<TransformerLayer> layers_;
  NormLayer norm_;
  ParameterPtr head_;  ///< the embedding itself where they are tied
};

}  // namespace weft
