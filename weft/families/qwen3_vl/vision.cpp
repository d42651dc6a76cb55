#include "weft/families/qwen3_vl/vision.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "weft/families/parts/limits.h"
#include "weft/families/parts/llm_numbers.h"
#include "weft/families/parts/module_builder.h"
#include "weft/families/parts/patch_encoder.h"

namespace weft {
namespace {

constexpr double kMergedEpsilon = 1e-6;
constexpr IntegerRange kPositionRange{1, 1 << 24};
/// A patch lies between so many learned positions.
constexpr int64_t kCorners = 4;
/// Files number mergers as the configuration lists their layers.
constexpr const char* kMergerPath = "deepstack_merger_list.{}";

/// A layer that a merger of its own takes rows from.
struct Branch {
  int64_t layer = 0;
  int64_t number = 0;  ///< in the configuration's list
};

/// In the order of the layers, which is that of the rows' parts.
std::vector<Branch> read_branches(Fields& config, int64_t depth, int64_t llm_layers) {
  constexpr const char* kKey = "deepstack_visual_indexes";
  std::vector<int64_t> layers = {8, 16, 24};
  if (config.has(kKey)) layers = config.integers_or_empty(kKey, kLayerIndexRange);
  std::vector<Branch> branches;
  for (size_t i = 0; i < layers.size(); ++i) branches.push_back({layers[i], static_cast<int64_t>(i)});
  std::sort(branches.begin(), branches.end(), [](const Branch& a, const Branch& b) { return a.layer < b.layer; });
  for (size_t i = 0; i < branches.size(); ++i) {
    if (branches[i].layer >= depth) {
      config.complain(kKey, fmt::format("names layer {}, but depth is {}, so that the last one is {}",
                                        branches[i].layer, depth, depth - 1));
      return {};
    }
    if (i > 0 && branches[i].layer == branches[i - 1].layer) {
      config.complain(kKey, fmt::format("names layer {} twice", branches[i].layer));
      return {};
    }
  }
  if (std::ssize(branches) > llm_layers) {
    config.complain(kKey, fmt::format("names {} layers, each of which is added behind one of the language model's, of "
                                      "which there are {}",
                                      branches.size(), llm_layers));
    return {};
  }
  return branches;
}

std::string branch_op(size_t branch, const char* what) {
  return fmt::format("branch.{}.{}", branch, what);
}

/// Merged rows are normed as a whole.
void add_merger(Block& exit, const PatchConfig& patches, size_t index, const Branch& branch) {
  const int64_t merged = patches.numbers.merge_size * patches.numbers.merge_size;
  const int64_t width = merged * patches.width;
  const RowsPerToken rows{.numerator = 1, .denominator = merged};
  Op norm = make_norm(branch_op(index, "norm"), NormKind::kLayer, width, kMergedEpsilon);
  norm.rows = rows;
  norm.has_whole_rows = true;
  norm.branches_from = branch.layer;
  exit.ops.push_back(std::move(norm));
  exit.ops.push_back({.name = branch_op(index, "up"),
                      .shape = Matmul{.in = width, .out = width, .bias_elements = width},
                      .out = Features::kInner,
                      .rows = rows,
                      .saved = {.whole = width},
                      .has_whole_rows = true});
  exit.ops.push_back({.name = branch_op(index, "activation"),
                      .shape = Pointwise{.elements_in = width, .elements_out = width, .activation = Activation::kGelu},
                      .in = Features::kInner,
                      .out = Features::kInner,
                      .rows = rows,
                      .saved = {.divided = width}});
  exit.ops.push_back({.name = branch_op(index, "down"),
                      .shape = Matmul{.in = width, .out = patches.output_width, .bias_elements = patches.output_width},
                      .in = Features::kInner,
                      .rows = rows,
                      .saved = {.divided = width}});
}

void add_positions(Block& entry, const PatchConfig& patches, int64_t num_positions) {
  const int64_t width = patches.width;
  entry.ops.push_back({.name = "positions",
                       .shape = Lookup{.entries = num_positions, .width = width},
                       .rows = {.numerator = kCorners}});
  entry.ops.push_back(
      {.name = "positions.sum", .shape = Pointwise{.elements_in = (kCorners + 1) * width, .elements_out = width}});
}

int64_t read_positions(Fields& config) {
  const int64_t positions = config.integer_or("num_position_embeddings", 2304, kPositionRange);
  const auto side = static_cast<int64_t>(std::llround(std::sqrt(static_cast<double>(positions))));
  if (side * side != positions) {
    config.complain(
        "num_position_embeddings",
        fmt::format("is {}, but positions are those of a square, so that a square number is needed, like {}", positions,
                    side * side));
  }
  return side;
}

void rename_ends(WeightTable& names) {
  for (NamedOp& named : names) {
    if (named.op == "norm") named.weights.names = {"merger.norm"};
    if (named.op == "merger.up") named.weights.names = {"merger.linear_fc1"};
    if (named.op == "merger.down") named.weights.names = {"merger.linear_fc2"};
  }
}

}  // namespace

Module read_stacked_patch_encoder(Fields& config, int64_t llm_width, int64_t llm_layers, const std::string& path,
                                  DeclaredModel& model) {
  PatchConfig patches = read_patches(config,
                                     {.width = "hidden_size",
                                      .default_width = 1152,
                                      .output_width = "out_hidden_size",
                                      .default_depth = 27,
                                      .default_patch_size = 16},
                                     llm_width);
  const int64_t intermediate = config.integer_or("intermediate_size", 4304, kIntermediateRange);
  const Activation activation = read_activation(config, "hidden_act", "gelu_pytorch_tanh");
  patches.numbers.positions_per_side = read_positions(config);
  patches.numbers.pixel_mean.fill(0.5);
  patches.numbers.pixel_deviation.fill(0.5);
  patches.numbers.processors = {"Qwen2VL", "Qwen3VL"};
  const std::vector<Branch> branches = read_branches(config, patches.depth, llm_layers);

  ModuleBuilder builder;
  for (int64_t layer = 0; layer < patches.depth; ++layer) {
    builder.add_layer(
        {.name = "layer",
         .width = patches.width,
         .norm = NormKind::kLayer,
         .epsilon = kMergedEpsilon,
         .attention = patch_attention(patches),
         .mlp = {.intermediate = intermediate, .is_gated = false, .has_bias = true, .activation = activation},
         .dropout = {.in_attention = patches.heads.dropout}});
  }
  Module module = builder.take();
  WeightTable names = patch_weight_names(patches);
  rename_ends(names);
  names.push_back({"mlp.up", {{"mlp.linear_fc1"}}});
  names.push_back({"mlp.down", {{"mlp.linear_fc2"}}});
  names.push_back({"positions", {{"pos_embed"}}});
  finish_patch_encoder(module, patches, make_norm("norm", NormKind::kLayer, patches.width, kMergedEpsilon), names,
                       path);
  std::get<Matmul>(module.entry.ops.front().shape).bias_elements = patches.width;
  const int64_t side = patches.numbers.positions_per_side;
  add_positions(module.entry, patches, side * side);
  std::vector<std::string> ops;
  ops.reserve(3 * branches.size());  // names in a table are views
  for (size_t i = 0; i < branches.size(); ++i) {
    add_merger(module.exit, patches, i, branches[i]);
    const std::string merger = numbered(kMergerPath, branches[i].number);
    for (const auto& [op, weight] : {std::pair("norm", "norm"), {"up", "linear_fc1"}, {"down", "linear_fc2"}})
      names.push_back({ops.emplace_back(branch_op(i, op)), {{merger + "." + weight}}});
  }
  module.output_parts = 1 + std::ssize(branches);
  module.output_width = module.output_parts * patches.output_width;
  name_weights(module, names);
  model.media.patches_per_embedding = patches.numbers.merge_size * patches.numbers.merge_size;
  model.numbers.vision = patches.numbers;
  return module;
}

}  // namespace weft
