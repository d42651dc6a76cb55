#include <algorithm>
#include <array>
#include <cmath>

#include <fmt/format.h>

#include "weft/families/parts/image_tower.h"
#include "weft/families/parts/limits.h"
#include "weft/families/parts/llm_numbers.h"
#include "weft/families/parts/module_builder.h"
#include "weft/families/parts/patch_encoder.h"

namespace weft {
namespace {

constexpr IntegerRange kImageRange{1, 1 << 16};
constexpr TextSizes kTextSizes{.vocabulary = 151936, .width = 4096, .intermediate = 22016, .layers = 32, .heads = 32};

/// The patches along a side that become one embedding's: the inverse of the ratio.
int64_t read_merge_size(Fields& config) {
  const double ratio = config.number_or("downsample_ratio", 0.5, {1e-3, 1});
  const auto merge = static_cast<int64_t>(std::llround(1 / ratio));
  if (std::abs(ratio * static_cast<double>(merge) - 1) > 1e-9) {
    config.complain("downsample_ratio", fmt::format("is {}, but one divided by a whole number is needed", ratio));
  }
  return merge;
}

WeightTable tower_weight_names(const VisionNumbers& numbers, int64_t width) {
  return {
      {"patch_embedding",
       {.names = {"vision_tower.embeddings.patch_embeddings.projection"},
        .row_dims = {numbers.channels, numbers.patch_size, numbers.patch_size}}},
      {"class_token", {.names = {"vision_tower.embeddings.cls_token"}, .are_bare = true, .shape = {1, 1, width}}},
      {"positions",
       {.names = {"vision_tower.embeddings.position_embeddings"},
        .are_bare = true,
        .shape = {1, 1 + numbers.patches_per_tile(), width}}},
      {"attention.norm", {{"layernorm_before"}}},
      {"attention.qkv", {{"attention.q_proj", "attention.k_proj", "attention.v_proj"}}},
      {"attention.q_norm", {{"attention.q_norm"}}},
      {"attention.k_norm", {{"attention.k_norm"}}},
      {"attention.out", {{"attention.projection_layer"}}},
      {"attention.scale", {.names = {"lambda_1"}, .are_bare = true}},
      {"mlp.norm", {{"layernorm_after"}}},
      {"mlp.up", {{"mlp.fc1"}}},
      {"mlp.down", {{"mlp.fc2"}}},
      {"mlp.scale", {.names = {"lambda_2"}, .are_bare = true}},
      {"norm", {{"vision_tower.layernorm"}}},
      {"projector.norm", {{"multi_modal_projector.layer_norm"}}},
      {"projector.up", {{"multi_modal_projector.linear_1"}}},
      {"projector.down", {{"multi_modal_projector.linear_2"}}},
  };
}

Module read_tower(Fields& config, Fields& vision, int64_t llm_width, DeclaredModel& model) {
  static const std::array<std::string, 2> norms = {"layer_norm", "rms_norm"};
  static const std::array<std::string, 2> strategies = {"default", "full"};
  TowerConfig tower{.width = vision.integer_or("hidden_size", 1024, kWidthRange),
                    .intermediate = vision.integer_or("intermediate_size", 4096, kIntermediateRange),
                    .activation = read_activation(vision, "hidden_act", "gelu"),
                    .norm = vision.choice_or("norm_type", 0, norms) == 0 ? NormKind::kLayer : NormKind::kRms,
                    .epsilon = vision.number_or("layer_norm_eps", 1e-6, {0, 1}),
                    .has_positions = vision.flag_or("use_absolute_position_embeddings", true),
                    .has_qkv_bias = vision.flag_or("attention_bias", false),
                    .norms_queries = vision.flag_or("use_qk_norm", false),
                    .scale = vision.number_or("layer_scale_init_value", 0.1, {-1e3, 1e3}),
                    .dropout = {.in_attention = vision.number_or("attention_dropout", 0, kProbabilityRange),
                                .behind_attention = vision.number_or("projection_dropout", 0, kProbabilityRange),
                                .behind_mlp = vision.number_or("hidden_dropout_prob", 0, kProbabilityRange)},
                    .embedding_dropout = vision.number_or("hidden_dropout_prob", 0, kProbabilityRange),
                    .numbers = {.channels = vision.integer_or("num_channels", 3, kChannelRange),
                                .patch_size = read_side(vision, "patch_size", 14, kPatchRange),
                                .temporal_patch_size = 1,
                                .merge_size = read_merge_size(config),
                                .pixel_mean = {0.485, 0.456, 0.406},
                                .pixel_deviation = {0.229, 0.224, 0.225},
                                .processors = {"GotOcr2", "InternVL"}},
                    .deviation = vision.number_or("initializer_range", 0.02, {0, 1e3}),
                    .norms_merged = true,
                    .projector_activation = read_activation(config, "projector_hidden_act", "gelu"),
                    .output_width = llm_width};
  set_tile(vision, "image_size", read_side(vision, "image_size", 448, kImageRange), tower.numbers);
  const int64_t heads = vision.integer_or("num_attention_heads", 16, kHeadRange);
  check_heads_divide(vision, "num_attention_heads", heads, "hidden_size", tower.width);
  tower.heads = {.heads = heads, .kv_heads = heads, .head_dim = std::max<int64_t>(tower.width / heads, 1)};
  const int64_t num_layers = vision.integer_or("num_hidden_layers", 24, kLayerRange);
  tower.depth = read_feature_depth(config, "vision_feature_layer", -1, num_layers);
  // Features of a layer that is named otherwise than as the last one are taken before the norm.
  const bool reads_end = config.integer_or("vision_feature_layer", -1, {-num_layers - 1, num_layers}) == -1;
  tower.norms_last = reads_end && !vision.flag_or("use_mean_pooling", true);
  if (config.choice_or("vision_feature_select_strategy", 0, strategies) != 0) {
    config.complain("vision_feature_select_strategy",
                    "is full, but the class has no place in the squares of patches that are merged", "Use default.");
  }
  const int64_t rows = tower.numbers.patches_per_tile() / (tower.numbers.merge_size * tower.numbers.merge_size);
  if (config.integer_or("image_seq_length", rows, {1, int64_t{1} << 32}) != rows) {
    config.complain("image_seq_length", fmt::format("does not fit: an image of {} × {} patches has {} embeddings",
                                                    tower.numbers.tile_side, tower.numbers.tile_side, rows));
  }
  // Layers behind the one that is read, and what is there for other uses of the tower.
  WeightFiles& files = model.numbers.files;
  for (int64_t layer = tower.depth; layer < num_layers; ++layer)
    files.unused_beginnings.push_back(fmt::format("vision_tower.encoder.layer.{}.", layer));
  if (!tower.norms_last) files.unused_beginnings.emplace_back("vision_tower.layernorm.");
  files.unused_endings.emplace_back("embeddings.mask_token");
  return make_image_tower(tower, tower_weight_names(tower.numbers, tower.width),
                          {.entry = "", .layer = "vision_tower.encoder.layer.{}.", .exit = ""}, model);
}

void read_internvl(Fields& config, DeclaredModel& model) {
  Fields text_config = config.object("text_config");
  Fields vision = config.object("vision_config");
  static const std::array<std::string, 1> backbones = {"qwen2"};
  text_config.choice_or("model_type", 0, backbones);
  // The outer flag decides; files from before transformers 5 have it in the inner configuration.
  model.has_tied_embeddings = config.flag_or("tie_word_embeddings", text_config.flag_or("tie_word_embeddings", true));
  TextConfig text = read_text_sizes(text_config, kTextSizes);
  text.heads.head_dim = read_head_dim(text_config, text);
  read_kv_heads(text_config, text, 32);
  text.has_qkv_bias = true;
  text.windows = read_windows_by_layer(text_config, text.num_layers, 28);
  read_intermediate(text_config, text, kTextSizes);
  model.numbers.llm = read_text_numbers(text_config, {}, text);

  model.modules.push_back(read_tower(config, vision, text.width, model));
  model.modules.push_back(make_text_module(text, model.has_tied_embeddings, "language_model."));
  model.numbers.media = {.time = TimeRule::kText,
                         .tokens = {.image = read_token(config, "image_token", 151667)},
                         .merge_size = model.numbers.vision->merge_size};
  model.numbers.image_text = {.before = "<img>", .after = "</img>"};
  model.numbers.video_text = {
      .placeholder = "<video>", .caption = "Frame{number}: ", .before = "<img>", .after = "</img>", .between = "\n"};
  // How transformers calls them in memory, which some files have.
  model.numbers.files.renamed = {{"model.language_model.", "language_model.model."},
                                 {"lm_head.", "language_model.lm_head."},
                                 {"model.vision_tower.", "vision_tower."},
                                 {"model.multi_modal_projector.", "multi_modal_projector."}};
  model.numbers.files.unused_endings.emplace_back("rotary_emb.inv_freq");
}

}  // namespace

std::vector<Family> internvl_families() {
  return {{"internvl", read_internvl}};
}

}  // namespace weft
