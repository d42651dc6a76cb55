#include <algorithm>

#include <fmt/format.h>

#include "weft/families/parts/limits.h"
#include "weft/families/parts/llm_numbers.h"
#include "weft/families/parts/module_builder.h"
#include "weft/families/parts/patch_encoder.h"

namespace weft {
namespace {

constexpr double kWindowedEpsilon = 1e-6;

/// Layers that attend to whole frames; all others have windows.
std::vector<bool> read_full_layers(Fields& config, int64_t depth) {
  std::vector<int64_t> full_layers = {7, 15, 23, 31};
  if (config.has("fullatt_block_indexes"))
    full_layers = config.integers_or_empty("fullatt_block_indexes", kLayerIndexRange);
  return layer_flags(full_layers, depth);
}

}  // namespace

Module read_windowed_patch_encoder(Fields& config, int64_t llm_width, bool has_separate_qkv, const std::string& path,
                                   DeclaredModel& model) {
  PatchConfig patches = read_patches(
      config, {.width = "hidden_size", .default_width = 3584, .output_width = "out_hidden_size"}, llm_width);
  const int64_t intermediate = config.integer_or("intermediate_size", 3420, kIntermediateRange);
  check_gated_activation(config);
  VisionNumbers& numbers = patches.numbers;
  numbers.window_size = config.integer_or("window_size", 112, kWindowRange);
  const int64_t merged_per_side = numbers.window_size / numbers.merge_size / numbers.patch_size;
  if (merged_per_side < 1) {
    config.complain("window_size",
                    fmt::format("is {} pixels, but one merged patch has {} × {} = {}", numbers.window_size,
                                numbers.patch_size, numbers.merge_size, numbers.patch_size * numbers.merge_size));
  }
  const std::vector<bool> is_full_layer = read_full_layers(config, patches.depth);
  const int64_t patches_per_side = std::max<int64_t>(1, merged_per_side * numbers.merge_size);

  ModuleBuilder builder;
  for (int64_t layer = 0; layer < patches.depth; ++layer) {
    const bool is_full = is_full_layer[static_cast<size_t>(layer)];
    AttentionShape attention = patch_attention(patches);
    if (!is_full) {
      attention.attention.mask = Mask::kWindowed;
      attention.attention.window = patches_per_side * patches_per_side;
    }
    builder.add_layer({.name = is_full ? "layer, full attention" : "layer, windowed attention",
                       .width = patches.width,
                       .norm = NormKind::kRms,
                       .epsilon = kWindowedEpsilon,
                       .attention = attention,
                       .mlp = {.intermediate = intermediate, .is_gated = true, .has_bias = true},
                       .dropout = {.in_attention = patches.heads.dropout}});
  }
  Module module = builder.take();
  WeightTable names = patch_weight_names(patches);
  names.push_back({"mlp.gate_up", {{"mlp.gate_proj", "mlp.up_proj"}}});
  names.push_back({"mlp.down", {{"mlp.down_proj"}}});
  for (NamedOp& named : names) {
    if (has_separate_qkv && named.op == "attention.qkv") named.weights.names = {"attn.q", "attn.k", "attn.v"};
  }
  finish_patch_encoder(module, patches, make_norm("norm", NormKind::kRms, patches.width, kWindowedEpsilon), names,
                       path);
  model.media.patches_per_embedding = numbers.merge_size * numbers.merge_size;
  model.numbers.vision = numbers;
  return module;
}

}  // namespace weft
