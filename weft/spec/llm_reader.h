#pragma once

#include "weft/base/fields.h"
#include "weft/spec/model.h"

namespace weft {

/// What differs between the language models that Weft reads, besides their sizes.
struct LlmFamily {
  bool has_qkv_bias = false;          ///< always, whatever the configuration says
  bool reads_attention_bias = false;  ///< "attention_bias" adds biases to all four projections
  bool reads_mlp_bias = false;
  bool reads_head_dim = false;
  int64_t default_head_dim = 0;  ///< 0: hidden_size / num_attention_heads
  bool norms_heads = false;
  bool is_moe = false;
  bool slides_per_layer = false;  ///< layer_types or max_window_layers choose the layers with a sliding window
  bool can_slide = true;
};

/// Reads the fields of a text configuration into the llm's chain of blocks.
Module read_llm(Fields& config, const LlmFamily& family, bool has_tied_embeddings);

}  // namespace weft
