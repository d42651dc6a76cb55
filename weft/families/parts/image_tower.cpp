#include "weft/families/parts/image_tower.h"

#include <algorithm>

#include <fmt/format.h>

#include "weft/families/parts/module_builder.h"

namespace weft {
namespace {

Block make_tower_entry(const TowerConfig& tower) {
  const VisionNumbers& numbers = tower.numbers;
  const int64_t pixels = numbers.patch_elements(), width = tower.width;
  const int64_t patches = numbers.patches_per_tile(), rows = patches + 1;
  Block block{.name = "patch embedding", .ops = {}};
  block.ops.push_back({.name = "patch_embedding",
                       .shape = Matmul{.in = pixels, .out = width, .bias_elements = tower.has_patch_bias ? width : 0},
                       .rows = {.numerator = patches, .denominator = rows},
                       .saved = {.whole = pixels}});
  block.ops.push_back({.name = "class_token",
                       .shape = Lookup{.entries = 1, .width = width},
                       .rows = {.numerator = 1, .denominator = rows}});
  if (tower.has_positions) {
    block.ops.push_back({.name = "positions", .shape = Lookup{.entries = rows, .width = width}});
    block.ops.push_back(
        {.name = "embedding.sum", .shape = Pointwise{.elements_in = 2 * width, .elements_out = width, .is_sum = true}});
  }
  if (tower.embedding_dropout > 0) {
    block.ops.push_back(
        {.name = "embedding.dropout",
         .shape = Pointwise{
             .elements_in = width, .elements_out = width, .dropped = width, .dropout = tower.embedding_dropout}});
  }
  if (tower.norms_first) block.ops.push_back(make_norm("first_norm", NormKind::kLayer, width, tower.epsilon));
  return block;
}

/// Rows that were merged are normed whole on every rank: squares of patches lie on several where rows are divided.
Block make_tower_exit(const TowerConfig& tower, RowsPerToken rows) {
  const int64_t merged = tower.width * tower.numbers.merge_size * tower.numbers.merge_size;
  const int64_t width = tower.output_width;
  const int64_t bias = tower.has_projector_bias ? width : 0;
  Block block{.name = "projector", .ops = {}};
  if (tower.norms_last) block.ops.push_back(make_norm("norm", NormKind::kLayer, tower.width, tower.epsilon));
  if (tower.norms_merged) {
    Op norm = make_norm("projector.norm", NormKind::kLayer, merged, tower.projector_epsilon);
    norm.rows = rows;
    norm.has_whole_rows = true;
    block.ops.push_back(std::move(norm));
  }
  block.ops.push_back({.name = "projector.up",
                       .shape = Matmul{.in = merged, .out = width, .bias_elements = bias},
                       .out = Features::kInner,
                       .rows = rows,
                       .saved = {.whole = merged},
                       .has_whole_rows = tower.norms_merged});
  block.ops.push_back(
      {.name = "projector.activation",
       .shape = Pointwise{.elements_in = width, .elements_out = width, .activation = tower.projector_activation},
       .in = Features::kInner,
       .out = Features::kInner,
       .rows = rows,
       .saved = {.divided = width}});
  block.ops.push_back({.name = "projector.down",
                       .shape = Matmul{.in = width, .out = width, .bias_elements = bias},
                       .in = Features::kInner,
                       .rows = rows,
                       .saved = {.divided = width}});
  return block;
}

}  // namespace

int64_t read_side(Fields& config, const std::string& key, int64_t fallback, IntegerRange range) {
  const Json* value = config.raw(key);
  if (value == nullptr || !value->is_array()) return config.integer_or(key, fallback, range);
  const std::vector<int64_t> sides = config.integers_or_empty(key, range);
  if (sides.size() != 2 || sides[0] != sides[1]) {
    config.complain(key, fmt::format("is [{}], but a square is needed", fmt::join(sides, ", ")),
                    "Give one number, or the same one twice.");
    return fallback;
  }
  return sides[0];
}

void set_tile(Fields& config, const std::string& key, int64_t image_size, VisionNumbers& numbers) {
  const int64_t unit = numbers.patch_size * numbers.merge_size;
  if (image_size % unit != 0) {
    config.complain(key, fmt::format("is {}, which is no multiple of {}: squares of {} × {} patches of {} pixels",
                                     image_size, unit, numbers.merge_size, numbers.merge_size, numbers.patch_size));
  }
  numbers.tile_side = std::max<int64_t>(image_size / unit, 1) * numbers.merge_size;
}

int64_t read_feature_depth(Fields& config, const std::string& key, int64_t fallback, int64_t num_layers) {
  if (const Json* value = config.raw(key); value != nullptr && value->is_array()) {
    config.complain(key, "is a list, but the features of one layer are needed",
                    "Use a model whose projector reads one layer.");
    return num_layers;
  }
  const int64_t layer = config.integer_or(key, fallback, {-num_layers - 1, num_layers});
  const int64_t depth = layer < 0 ? num_layers + 1 + layer : layer;
  if (depth < 1) config.complain(key, fmt::format("is {}, which leaves no layer to run", layer));
  return std::max<int64_t>(depth, 1);
}

Module make_image_tower(const TowerConfig& tower, const WeightTable& names, const BlockPaths& paths,
                        DeclaredModel& model) {
  const int64_t patches = tower.numbers.patches_per_tile();
  const int64_t unit = tower.numbers.merge_size * tower.numbers.merge_size;
  const int64_t bias = tower.has_qkv_bias ? tower.width : 0;
  ModuleBuilder builder;
  for (int64_t layer = 0; layer < tower.depth; ++layer) {
    builder.add_layer({.name = "layer",
                       .width = tower.width,
                       .norm = tower.norm,
                       .epsilon = tower.epsilon,
                       .attention = {.attention = tower.heads,
                                     .q_bias = bias,
                                     .k_bias = bias,
                                     .v_bias = bias,
                                     .out_bias = tower.width,
                                     .norms_rows = tower.norms_queries,
                                     .norm_epsilon = 1e-6,
                                     .has_rotary = false},
                       .mlp = {.intermediate = tower.intermediate,
                               .is_gated = false,
                               .has_bias = true,
                               .activation = tower.activation},
                       .dropout = tower.dropout,
                       .scale = tower.scale});
  }
  Module module = builder.take();
  module.kind = ModuleKind::kVision;
  module.width = tower.width;
  module.output_width = tower.output_width;
  module.output_rows = {.numerator = patches / unit, .denominator = patches + 1};
  module.entry = make_tower_entry(tower);
  module.exit = make_tower_exit(tower, module.output_rows);
  module.network = "image tower";
  module.paths = paths;
  module.deviation = tower.deviation;
  name_weights(module, names);
  model.media.patches_per_embedding = unit;
  model.media.patches_per_tile = patches;
  model.numbers.vision = tower.numbers;
  return module;
}

}  // namespace weft
