#include <algorithm>

#include <fmt/format.h>

#include "weft/spec/encoder_readers.h"
#include "weft/spec/limits.h"
#include "weft/spec/module_builder.h"
#include "weft/spec/transformer_block.h"

namespace weft {
namespace {

/// What the two generations of vision encoder have in common: patches in, merged embeddings out.
struct PatchConfig {
  int64_t depth = 0;
  int64_t width = 0;
  int64_t output_width = 0;
  int64_t channels = 0;
  int64_t patch = 0;
  int64_t temporal_patch = 0;
  int64_t merge = 0;
  Attention heads;
};

/// `width_key` and `output_key` differ between generations: in Qwen2-VL "hidden_size" is the output's width. Every size
/// has Hugging Face's default, because Hugging Face leaves out what equals it when it saves a nested configuration.
PatchConfig read_patches(Fields& config, std::string_view width_key, int64_t default_width, std::string_view output_key,
                         int64_t llm_width) {
  PatchConfig patches{
      .depth = config.integer_or("depth", 32, kLayerRange),
      .width = config.integer_or(width_key, default_width, kWidthRange),
      .output_width = config.integer_or(output_key, 3584, kWidthRange),
      .channels = config.integer_or("in_channels", 3, kChannelRange),
      .patch = config.integer_or("patch_size", 14, kPatchRange),
      .temporal_patch = config.integer_or("temporal_patch_size", 2, kMergeRange),
      .merge = config.integer_or("spatial_merge_size", 2, kMergeRange),
  };
  const char* heads_key =
      config.has("num_attention_heads") && !config.has("num_heads") ? "num_attention_heads" : "num_heads";
  patches.heads.heads = config.integer_or(heads_key, 16, kHeadRange);
  patches.heads.kv_heads = patches.heads.heads;
  check_heads_divide(config, heads_key, patches.heads.heads, width_key, patches.width);
  patches.heads.head_dim = patches.width / patches.heads.heads;
  check_rotary_dim(config, heads_key, patches.heads.head_dim);
  if (patches.output_width != llm_width) {
    config.complain(output_key,
                    fmt::format("is {}, but the language model's hidden_size is {}", patches.output_width, llm_width),
                    "Image embeddings take the place of token embeddings, so the two must be equal.");
  }
  return patches;
}

AttentionShape make_attention(const PatchConfig& patches) {
  return {.attention = patches.heads,
          .q_bias = patches.width,
          .k_bias = patches.width,
          .v_bias = patches.width,
          .out_bias = patches.width};
}

void add_patch_embedding_and_merger(Module& module, const PatchConfig& patches, NormKind norm) {
  const int64_t pixels = patches.channels * patches.temporal_patch * patches.patch * patches.patch;
  const int64_t merged = patches.merge * patches.merge;
  const int64_t merged_width = merged * patches.width;
  const RowsPerToken merged_rows{.numerator = 1, .denominator = merged};
  module.kind = ModuleKind::kVision;
  module.width = patches.width;
  module.output_width = patches.output_width;
  module.output_rows = merged_rows;
  module.entry = {.name = "patch embedding",
                  .ops = {{.name = "patch_embedding",
                           .shape = Matmul{.in = pixels, .out = patches.width},
                           .saved = {.whole = pixels}}}};
  module.exit = {
      .name = "merger",
      .ops = {make_norm("norm", norm, patches.width),
              {.name = "merger.up",
               .shape = Matmul{.in = merged_width, .out = merged_width, .bias_elements = merged_width},
               .split = TensorSplit::kColumn,
               .rows = merged_rows,
               .saved = {.whole = merged_width}},
              {.name = "merger.activation",
               .shape = Pointwise{.elements_in = merged_width, .elements_out = merged_width},
               .split = TensorSplit::kInside,
               .rows = merged_rows,
               .saved = {.divided = merged_width}},
              {.name = "merger.down",
               .shape = Matmul{.in = merged_width, .out = patches.output_width, .bias_elements = patches.output_width},
               .split = TensorSplit::kRow,
               .rows = merged_rows,
               .saved = {.divided = merged_width}}}};
}

}  // namespace

Module read_qwen2_vision(Fields& config, int64_t llm_width, MediaGeometry& media) {
  const PatchConfig patches = read_patches(config, "embed_dim", 1280, "hidden_size", llm_width);
  const double mlp_ratio = config.number_or("mlp_ratio", 4, {0.001, 1024});
  const auto intermediate = static_cast<int64_t>(static_cast<double>(patches.width) * mlp_ratio);
  if (intermediate < 1) config.complain("mlp_ratio", fmt::format("is {}, which leaves the MLP no width", mlp_ratio));

  ModuleBuilder builder;
  for (int64_t layer = 0; layer < patches.depth; ++layer) {
    builder.add_layer({.name = "layer",
                       .width = patches.width,
                       .norm = NormKind::kLayer,
                       .attention = make_attention(patches),
                       .mlp = {.intermediate = intermediate, .is_gated = false, .has_bias = true}});
  }
  Module module = builder.take();
  add_patch_embedding_and_merger(module, patches, NormKind::kLayer);
  media.patches_per_embedding = patches.merge * patches.merge;
  return module;
}

Module read_qwen2_5_vision(Fields& config, int64_t llm_width, MediaGeometry& media) {
  const PatchConfig patches = read_patches(config, "hidden_size", 3584, "out_hidden_size", llm_width);
  const int64_t intermediate = config.integer_or("intermediate_size", 3420, kIntermediateRange);
  const int64_t window_pixels = config.integer_or("window_size", 112, kWindowRange);
  const int64_t merged_per_side = window_pixels / patches.merge / patches.patch;
  if (merged_per_side < 1) {
    config.complain("window_size", fmt::format("is {} pixels, but one merged patch has {} × {} = {}", window_pixels,
                                               patches.patch, patches.merge, patches.patch * patches.merge));
  }
  std::vector<int64_t> full_layers = {7, 15, 23, 31};
  if (config.has("fullatt_block_indexes"))
    full_layers = config.integers_or_empty("fullatt_block_indexes", kLayerIndexRange);
  const std::vector<bool> is_full_layer = layer_flags(full_layers, patches.depth);
  const int64_t patches_per_side = std::max<int64_t>(1, merged_per_side * patches.merge);

  ModuleBuilder builder;
  for (int64_t layer = 0; layer < patches.depth; ++layer) {
    const bool is_full = is_full_layer[static_cast<size_t>(layer)];
    AttentionShape attention = make_attention(patches);
    if (!is_full) {
      attention.attention.mask = Mask::kWindowed;
      attention.attention.window = patches_per_side * patches_per_side;
    }
    builder.add_layer({.name = is_full ? "layer, full attention" : "layer, windowed attention",
                       .width = patches.width,
                       .norm = NormKind::kRms,
                       .attention = attention,
                       .mlp = {.intermediate = intermediate, .is_gated = true, .has_bias = true}});
  }
  Module module = builder.take();
  add_patch_embedding_and_merger(module, patches, NormKind::kRms);
  media.patches_per_embedding = patches.merge * patches.merge;
  return module;
}

}  // namespace weft
