#include <fmt/format.h>

#include "weft/families/parts/limits.h"
#include "weft/families/parts/module_builder.h"
#include "weft/families/parts/multimodal_text.h"
#include "weft/families/parts/patch_encoder.h"

namespace weft {
namespace {

constexpr double kVisionEpsilon = 1e-6;

/// Layer norms, plain MLPs, and attention to whole frames. Here "hidden_size" is the output's width.
Module read_qwen2_vision(Fields& config, int64_t llm_width, DeclaredModel& model) {
  PatchConfig patches =
      read_patches(config, {.width = "embed_dim", .default_width = 1280, .output_width = "hidden_size"}, llm_width);
  patches.numbers.processors = {"Qwen2VL", "Qwen2_5"};
  const double mlp_ratio = config.number_or("mlp_ratio", 4, {0.001, 1024});
  const auto intermediate = static_cast<int64_t>(static_cast<double>(patches.width) * mlp_ratio);
  if (intermediate < 1) config.complain("mlp_ratio", fmt::format("is {}, which leaves the MLP no width", mlp_ratio));
  const Activation activation = read_activation(config, "hidden_act", "quick_gelu");

  ModuleBuilder builder;
  for (int64_t layer = 0; layer < patches.depth; ++layer) {
    builder.add_layer(
        {.name = "layer",
         .width = patches.width,
         .norm = NormKind::kLayer,
         .epsilon = kVisionEpsilon,
         .attention = patch_attention(patches),
         .mlp = {.intermediate = intermediate, .is_gated = false, .has_bias = true, .activation = activation},
         .dropout = {.in_attention = patches.heads.dropout}});
  }
  Module module = builder.take();
  WeightTable names = patch_weight_names(patches);
  names.push_back({"mlp.up", {{"mlp.fc1"}}});
  names.push_back({"mlp.down", {{"mlp.fc2"}}});
  finish_patch_encoder(module, patches, make_norm("norm", NormKind::kLayer, patches.width, kVisionEpsilon), names,
                       "visual.");
  model.media.patches_per_embedding = patches.numbers.merge_size * patches.numbers.merge_size;
  model.numbers.vision = patches.numbers;
  return module;
}

void read_qwen2_vl(Fields& config, DeclaredModel& model) {
  const TextConfig text = read_nested_text(config, model);
  Fields vision = config.object("vision_config");
  model.modules.push_back(read_qwen2_vision(vision, text.width, model));
  model.modules.push_back(make_text_module(text, model.has_tied_embeddings));
  model.numbers.media = read_media_rules(config, TimeRule::kFrames, *model.numbers.vision);
  model.numbers.files = nested_weight_files();
}

}  // namespace

std::vector<Family> qwen2_vl_families() {
  return {{"qwen2_vl", read_qwen2_vl}};
}

}  // namespace weft
