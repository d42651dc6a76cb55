#pragma once

#include <optional>

#include "weft/families/family.h"
#include "weft/program/name_weights.h"
#include "weft/program/transformer_block.h"

namespace weft {

/// A vision transformer over square images of one size: a row for the class in front of an image's patches, learned
/// positions, plain MLPs. Squares of patches, without the class, are merged and projected to the llm's width by an MLP.
struct TowerConfig {
  int64_t depth = 0;  ///< layers that are run
  int64_t width = 0;
  int64_t intermediate = 0;
  Attention heads;
  Activation activation = Activation::kGelu;
  NormKind norm = NormKind::kLayer;  ///< of layers; those at the ends are layer norms
  double epsilon = 1e-6;
  bool has_patch_bias = true;
  bool has_positions = true;
  bool has_qkv_bias = true;
  bool norms_queries = false;                  ///< and keys, all heads of a row together
  std::optional<double> scale = std::nullopt;  ///< of what layers add, fresh
  bool norms_first = false;                    ///< before the first layer
  bool norms_last = false;                     ///< behind the last one
  DropoutShape dropout = {};                   ///< of layers
  double embedding_dropout = 0;                ///< of rows that enter the first of them
  VisionNumbers numbers;
  double deviation = 0.02;
  bool norms_merged = false;  ///< before the projector
  double projector_epsilon = 1e-5;
  Activation projector_activation = Activation::kGelu;
  bool has_projector_bias = true;
  int64_t output_width = 0;  ///< the llm's, and the projector's between its two products
};

/// Side of a square that a configuration gives as a number or as two.
int64_t read_side(Fields& config, const std::string& key, int64_t fallback, IntegerRange range);

/// Sets `numbers` to tiles of an image's size. Patches must divide it, and squares of them the patches.
void set_tile(Fields& config, const std::string& key, int64_t image_size, VisionNumbers& numbers);

/// How many layers are run for the features of one: -1 is the last one's, 0 what enters the first.
int64_t read_feature_depth(Fields& config, const std::string& key, int64_t fallback, int64_t num_layers);

/// Operators of its ends: patch_embedding, class_token, positions, embedding.dropout, first_norm; norm, projector.norm,
/// projector.up, projector.down.
Module make_image_tower(const TowerConfig& tower, const WeightTable& names, const BlockPaths& paths,
                        DeclaredModel& model);

}  // namespace weft
