#pragma once

#include "weft/families/family.h"
#include "weft/program/name_weights.h"
#include "weft/program/transformer_block.h"

namespace weft {

/// A vision encoder that turns patches of images and videos, by row and column, and merges squares of them into
/// embeddings of the llm's width.
struct PatchConfig {
  int64_t depth = 0;
  int64_t width = 0;
  int64_t output_width = 0;
  VisionNumbers numbers;
  Attention heads;
  double deviation = 0.02;
};

/// The fields whose names differ.
struct PatchKeys {
  const char* width;
  int64_t default_width;
  const char* output_width;
  int64_t default_depth = 32;
  int64_t default_patch_size = 14;
};

/// Every size has Hugging Face's default, because Hugging Face leaves out what equals it when it saves a nested
/// configuration. The output must fit the llm.
PatchConfig read_patches(Fields& config, const PatchKeys& keys, int64_t llm_width);

/// Attention of a layer, with biases.
AttentionShape patch_attention(const PatchConfig& patches);

/// Gives layers their ends: the patches' embedding, and a norm with a merger. Weights are called as `names` says, below
/// `path`.
void finish_patch_encoder(Module& module, const PatchConfig& patches, const Op& norm, const WeightTable& names,
                          const std::string& path);

/// What files call its weights outside of MLPs.
WeightTable patch_weight_names(const PatchConfig& patches);

/// Layers with root-mean-square norms and gated MLPs, most of which attend inside windows.
Module read_windowed_patch_encoder(Fields& config, int64_t llm_width, bool has_separate_qkv, const std::string& path,
                                   DeclaredModel& model);

/// What its tokens are, which all of these models name alike, and its positions.
RopeRules read_media_rules(Fields& config, TimeRule time, const VisionNumbers& vision);

/// A token's id under "NAME_index" or "NAME_id".
int64_t read_token(Fields& config, const std::string& name, int64_t fallback);

/// Files that put the modules of a multimodal model one level deeper.
WeightFiles nested_weight_files();

}  // namespace weft
