#pragma once

#include <optional>
#include <vector>

#include "weft/base/fields.h"
#include "weft/families/family.h"

namespace weft {

/// Experts of some layers.
struct MoeConfig {
  int64_t experts = 0;
  int64_t experts_per_token = 0;
  int64_t intermediate = 0;
  int64_t sparse_step = 1;
  std::vector<bool> is_dense;  ///< layers that have no experts whatever the step

  bool is_sparse(int64_t layer) const {
    return experts > 0 && (layer + 1) % sparse_step == 0 && !is_dense[static_cast<size_t>(layer)];
  }
};

/// A language model of rotary decoder layers with root-mean-square norms and gated MLPs, as a family read it.
struct TextConfig {
  int64_t width = 0;
  int64_t vocabulary = 0;
  int64_t num_layers = 0;
  int64_t intermediate = 0;  ///< of layers without experts
  Attention heads;
  bool has_qkv_bias = false;
  bool has_out_bias = false;
  bool has_mlp_bias = false;
  bool norms_heads = false;
  std::vector<int64_t> windows;  ///< of each layer, 0 for none; empty: no layer has one
  MoeConfig moe;
  double norm_epsilon = 1e-6;
  double deviation = 0.02;
  int64_t padding_id = -1;

  bool has_experts(int64_t layer) const { return moe.experts > 0 && moe.is_sparse(layer); }
};

/// Sizes that Hugging Face assumes where a configuration leaves them out, as it does itself when it saves a nested one.
struct TextSizes {
  int64_t vocabulary;
  int64_t width;
  int64_t intermediate;
  int64_t layers;
  int64_t heads;
};

// What families read in common, one after the other in this order.

/// Width, vocabulary, layers and heads, and what a fresh model is like.
TextConfig read_text_sizes(Fields& config, const std::optional<TextSizes>& defaults = std::nullopt);
/// "head_dim", or the width divided by the heads.
int64_t read_head_dim(Fields& config, const TextConfig& text);
/// The width divided by the heads, whatever else is given.
int64_t derived_head_dim(Fields& config, const TextConfig& text);
/// `fallback` 0: as many as heads.
void read_kv_heads(Fields& config, TextConfig& text, int64_t fallback);
/// Sizes are needed where `defaults` has none.
MoeConfig read_moe(Fields& config, int64_t num_layers, const std::optional<MoeConfig>& defaults = std::nullopt);
/// One window for all layers.
std::vector<int64_t> read_window(Fields& config, int64_t num_layers);
/// Windows of the layers that layer_types or max_window_layers choose.
std::vector<int64_t> read_windows_by_layer(Fields& config, int64_t num_layers, int64_t default_first_layer);
/// "intermediate_size", which must be there if a layer has no experts.
void read_intermediate(Fields& config, TextConfig& text, const std::optional<TextSizes>& defaults = std::nullopt);

/// The chain of blocks. Names of its weights begin with `prefix`.
Module make_text_module(const TextConfig& text, bool is_tied, const std::string& prefix = "");

}  // namespace weft
