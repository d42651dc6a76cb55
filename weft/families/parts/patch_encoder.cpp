#include "weft/families/parts/patch_encoder.h"

#include <fmt/format.h>

#include "weft/families/parts/limits.h"
#include "weft/families/parts/llm_numbers.h"
#include "weft/families/parts/module_builder.h"

namespace weft {
namespace {

/// What leaves the last layer: a norm, and an MLP over merged patches.
Block make_merger(const PatchConfig& patches, const Op& norm) {
  const int64_t merged = patches.numbers.merge_size * patches.numbers.merge_size;
  const int64_t width = merged * patches.width;
  const RowsPerToken rows{.numerator = 1, .denominator = merged};
  return {.name = "merger",
          .ops = {norm,
                  {.name = "merger.up",
                   .shape = Matmul{.in = width, .out = width, .bias_elements = width},
                   .out = Features::kInner,
                   .rows = rows,
                   .saved = {.whole = width}},
                  {.name = "merger.activation",
                   .shape = Pointwise{.elements_in = width, .elements_out = width, .activation = Activation::kGelu},
                   .in = Features::kInner,
                   .out = Features::kInner,
                   .rows = rows,
                   .saved = {.divided = width}},
                  {.name = "merger.down",
                   .shape = Matmul{.in = width, .out = patches.output_width, .bias_elements = patches.output_width},
                   .in = Features::kInner,
                   .rows = rows,
                   .saved = {.divided = width}}}};
}

}  // namespace

PatchConfig read_patches(Fields& config, const PatchKeys& keys, int64_t llm_width) {
  PatchConfig patches{
      .depth = config.integer_or("depth", keys.default_depth, kLayerRange),
      .width = config.integer_or(keys.width, keys.default_width, kWidthRange),
      .output_width = config.integer_or(keys.output_width, 3584, kWidthRange),
      .numbers = {.channels = config.integer_or("in_channels", 3, kChannelRange),
                  .patch_size = config.integer_or("patch_size", keys.default_patch_size, kPatchRange),
                  .temporal_patch_size = config.integer_or("temporal_patch_size", 2, kMergeRange),
                  .merge_size = config.integer_or("spatial_merge_size", 2, kMergeRange)},
      .deviation = config.number_or("initializer_range", 0.02, {0, 1e3}),
  };
  const char* heads_key =
      config.has("num_attention_heads") && !config.has("num_heads") ? "num_attention_heads" : "num_heads";
  Attention& heads = patches.heads;
  heads.heads = config.integer_or(heads_key, 16, kHeadRange);
  heads.kv_heads = heads.heads;
  heads.dropout = config.number_or("attention_dropout", 0, kProbabilityRange);
  check_heads_divide(config, heads_key, heads.heads, keys.width, patches.width);
  heads.head_dim = patches.width / heads.heads;
  if (heads.head_dim % 4 != 0) {
    config.complain(heads_key, fmt::format("gives heads of {} elements; half of them turn by the row and half by the "
                                           "column, so a multiple of 4 is needed",
                                           heads.head_dim));
  }
  if (patches.output_width != llm_width) {
    config.complain(keys.output_width,
                    fmt::format("is {}, but the language model's hidden_size is {}", patches.output_width, llm_width),
                    "Image embeddings take the place of token embeddings, so the two must be equal.");
  }
  if (config.has("rope_parameters")) {
    patches.numbers.rope_theta = config.object("rope_parameters").number_or("rope_theta", 10000, kPositiveRange);
  }
  return patches;
}

AttentionShape patch_attention(const PatchConfig& patches) {
  return {.attention = patches.heads,
          .q_bias = patches.width,
          .k_bias = patches.width,
          .v_bias = patches.width,
          .out_bias = patches.width};
}

WeightTable patch_weight_names(const PatchConfig& patches) {
  const VisionNumbers& numbers = patches.numbers;
  return {
      {"patch_embedding",
       {.names = {"patch_embed.proj"},
        .row_dims = {numbers.channels, numbers.temporal_patch_size, numbers.patch_size, numbers.patch_size}}},
      {"attention.norm", {{"norm1"}}},
      {"attention.qkv", {{"attn.qkv"}}},
      {"attention.out", {{"attn.proj"}}},
      {"mlp.norm", {{"norm2"}}},
      {"norm", {{"merger.ln_q"}}},
      {"merger.up", {{"merger.mlp.0"}}},
      {"merger.down", {{"merger.mlp.2"}}},
  };
}

void finish_patch_encoder(Module& module, const PatchConfig& patches, const Op& norm, const WeightTable& names,
                          const std::string& path) {
  const int64_t pixels = patches.numbers.patch_elements();
  module.kind = ModuleKind::kVision;
  module.width = patches.width;
  module.output_width = patches.output_width;
  module.output_rows = {.numerator = 1, .denominator = patches.numbers.merge_size * patches.numbers.merge_size};
  module.entry = {.name = "patch embedding",
                  .ops = {{.name = "patch_embedding",
                           .shape = Matmul{.in = pixels, .out = patches.width},
                           .saved = {.whole = pixels}}}};
  module.exit = make_merger(patches, norm);
  module.network = "patch encoder";
  module.paths = {.entry = path, .layer = path + "blocks.{}.", .exit = path};
  module.deviation = patches.deviation;
  name_weights(module, names);
}

int64_t read_token(Fields& config, const std::string& name, int64_t fallback) {
  const std::string by_index = name + "_index";
  const std::string key = config.has(by_index) ? by_index : name + "_id";
  return config.integer_or(key, fallback, kTokenIdRange);
}

RopeRules read_media_rules(Fields& config, TimeRule time, const VisionNumbers& vision) {
  return {.time = time,
          .tokens = {.image = read_token(config, "image_token", 151655),
                     .video = read_token(config, "video_token", 151656),
                     .vision_start = config.integer_or("vision_start_token_id", 151652, kTokenIdRange),
                     .vision_end = config.integer_or("vision_end_token_id", 151653, kTokenIdRange)},
          .merge_size = vision.merge_size};
}

WeightFiles nested_weight_files() {
  return {.renamed = {{"model.visual.", "visual."}, {"model.language_model.", "model."}},
          .unused_beginnings = {},
          .unused_endings = {"rotary_emb.inv_freq"}};
}

}  // namespace weft
