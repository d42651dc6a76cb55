// A family of its own: CLIP's tower, a projector of two products, and a Llama.
#include <array>

#include <fmt/format.h>

#include "weft/families/family_library.h"
#include "weft/families/parts/image_tower.h"
#include "weft/families/parts/limits.h"
#include "weft/families/parts/llm_numbers.h"
#include "weft/families/parts/module_builder.h"
#include "weft/families/parts/patch_encoder.h"

namespace {

using namespace weft;

constexpr IntegerRange kImageRange{1, 1 << 16};
const std::string kTower = "vision_tower.vision_model.";

WeightTable tower_names(const VisionNumbers& numbers, int64_t width) {
  return {
      {"patch_embedding",
       {.names = {kTower + "embeddings.patch_embedding"},
        .row_dims = {numbers.channels, numbers.patch_size, numbers.patch_size}}},
      {"class_token", {.names = {kTower + "embeddings.class_embedding"}, .are_bare = true, .shape = {width}}},
      {"positions", {{kTower + "embeddings.position_embedding"}}},
      {"first_norm", {{kTower + "pre_layrnorm"}}},
      {"attention.norm", {{"layer_norm1"}}},
      {"attention.qkv", {{"self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"}}},
      {"attention.out", {{"self_attn.out_proj"}}},
      {"mlp.norm", {{"layer_norm2"}}},
      {"mlp.up", {{"mlp.fc1"}}},
      {"mlp.down", {{"mlp.fc2"}}},
      {"projector.up", {{"multi_modal_projector.linear_1"}}},
      {"projector.down", {{"multi_modal_projector.linear_2"}}},
  };
}

Module read_tower(Fields& config, int64_t llm_width, DeclaredModel& model) {
  Fields vision = config.object("vision_config");
  TowerConfig tower{.width = vision.integer_or("hidden_size", 1024, kWidthRange),
                    .intermediate = vision.integer_or("intermediate_size", 4096, kIntermediateRange),
                    .activation = read_activation(vision, "hidden_act", "quick_gelu"),
                    .epsilon = vision.number_or("layer_norm_eps", 1e-5, {0, 1}),
                    .has_patch_bias = false,
                    .norms_first = true,
                    .dropout = {.in_attention = vision.number_or("attention_dropout", 0, kProbabilityRange)},
                    .numbers = {.channels = vision.integer_or("num_channels", 3, kChannelRange),
                                .patch_size = vision.integer_or("patch_size", 14, kPatchRange),
                                .temporal_patch_size = 1,
                                .merge_size = 1},
                    .deviation = vision.number_or("initializer_range", 0.02, {0, 1e3}),
                    .projector_activation = read_activation(config, "projector_hidden_act", "gelu"),
                    .has_projector_bias = config.flag_or("multimodal_projector_bias", true),
                    .output_width = llm_width};
  set_tile(vision, "image_size", vision.integer_or("image_size", 336, kImageRange), tower.numbers);
  const int64_t heads = vision.integer_or("num_attention_heads", 16, kHeadRange);
  check_heads_divide(vision, "num_attention_heads", heads, "hidden_size", tower.width);
  tower.heads = {.heads = heads, .kv_heads = heads, .head_dim = std::max<int64_t>(tower.width / heads, 1)};
  // The projector reads the layer before the last one; files have that one, too, and a norm behind it.
  const int64_t num_layers = vision.integer_or("num_hidden_layers", 24, kLayerRange);
  tower.depth = read_feature_depth(config, "vision_feature_layer", -2, num_layers);
  WeightFiles& files = model.numbers.files;
  for (int64_t layer = tower.depth; layer < num_layers; ++layer)
    files.unused_beginnings.push_back(fmt::format("{}encoder.layers.{}.", kTower, layer));
  files.unused_beginnings.push_back(kTower + "post_layernorm.");
  files.unused_endings = {"embeddings.position_ids", "rotary_emb.inv_freq"};
  return make_image_tower(tower, tower_names(tower.numbers, tower.width),
                          {.entry = "", .layer = kTower + "encoder.layers.{}.", .exit = ""}, model);
}

void read_llava(Fields& config, DeclaredModel& model) {
  static const std::array<std::string, 1> backbones = {"llama"};
  static const std::array<std::string, 1> strategies = {"default"};
  Fields text_config = config.object("text_config");
  text_config.choice_or("model_type", 0, backbones);
  config.choice_or("vision_feature_select_strategy", 0, strategies);
  model.has_tied_embeddings = config.flag_or("tie_word_embeddings", false);
  constexpr TextSizes kSizes{.vocabulary = 32000, .width = 4096, .intermediate = 11008, .layers = 32, .heads = 32};
  TextConfig text = read_text_sizes(text_config, kSizes);
  text.heads.head_dim = read_head_dim(text_config, text);
  read_kv_heads(text_config, text, 0);
  read_intermediate(text_config, text, kSizes);
  model.numbers.llm = read_text_numbers(text_config, {.max_positions = 2048}, text);
  model.modules.push_back(read_tower(config, text.width, model));
  model.modules.push_back(make_text_module(text, model.has_tied_embeddings, "language_model."));
  // An image's rows have positions like tokens.
  model.numbers.media = {
      .time = TimeRule::kText, .tokens = {.image = read_token(config, "image_token", 32000)}, .merge_size = 1};
  // Files of several versions of transformers; a name that begins as the first one is as it is here.
  model.numbers.files.renamed = {{kTower, kTower},
                                 {"vision_tower.", kTower},
                                 {"model.vision_tower.vision_model.", kTower},
                                 {"model.vision_tower.", kTower},
                                 {"model.multi_modal_projector.", "multi_modal_projector."},
                                 {"model.language_model.", "language_model.model."},
                                 {"lm_head.", "language_model.lm_head."}};
}

std::vector<Family> llava_families() {
  return {{"llava", read_llava}};
}

}  // namespace

WEFT_FAMILY_LIBRARY(llava_families)
