#pragma once

#include <optional>

#include "weft/base/fields.h"
#include "weft/spec/model.h"
#include "weft/spec/transformer_block.h"

namespace weft {

/// Sizes that Hugging Face assumes where a configuration leaves them out, as it does itself when it saves a nested one.
struct LlmSizes {
  int64_t vocabulary;
  int64_t width;
  int64_t intermediate;
  int64_t layers;
  int64_t heads;
};

/// What differs between the language models that Weft reads, besides their sizes. Defaults are Hugging Face's.
struct LlmFamily {
  std::optional<LlmSizes> default_sizes;  ///< nothing: they must be given
  int64_t default_kv_heads = 0;           ///< 0: as many as heads
  int64_t default_window_layers = 28;
  bool has_qkv_bias = false;          ///< always, whatever the configuration says
  bool reads_attention_bias = false;  ///< "attention_bias" adds biases to all four projections
  bool reads_mlp_bias = false;
  bool reads_head_dim = false;
  int64_t default_head_dim = 0;     ///< 0: hidden_size / num_attention_heads
  bool heads_divide_width = false;  ///< even where head_dim is given
  bool norms_heads = false;
  bool is_moe = false;
  bool slides_per_layer = false;  ///< layer_types or max_window_layers choose the layers with a sliding window
  bool can_slide = true;
};

/// Reads the fields of a text configuration into the llm's chain of blocks.
Module read_llm(Fields& config, const LlmFamily& family, bool has_tied_embeddings);

/// GPT-2, whose configuration has names of its own: learned positions, layer norms with biases, a plain MLP, dropout.
Module read_gpt2(Fields& config, bool has_tied_embeddings);

/// What a language model ends in: norm, logits and loss.
Block make_head(int64_t vocabulary, int64_t width, NormKind norm, bool is_tied);

}  // namespace weft
