#pragma once

#include <string>

#include "weft/layers/transformer_layer.h"
#include "weft/models/layer_shape.h"

namespace weft {

/// Makes the parameters of layers whose weights follow one naming scheme.
struct WeightMaker {
  ParameterMaker& maker;
  double deviation = 0.02;

  ParameterPtr matrix(std::vector<WeightPiece> pieces, int64_t rows, int64_t columns) const;
  ParameterPtr bias(std::vector<WeightPiece> pieces, int64_t rows) const;
  NormLayer rms_norm(const std::string& name, int64_t width, double epsilon) const;
  /// The weight of a norm that every head has.
  ParameterPtr head_norm(const std::string& name, int64_t head_dim) const;
  NormLayer layer_norm(const std::string& name, int64_t width, double epsilon) const;
};

/// Query, key and value rows of three weights, "PREFIXq" and so on with the given endings, as attention packs them.
struct QkvNames {
  std::string q;
  std::string k;
  std::string v;
};

std::vector<WeightPiece> qkv_weights(const QkvNames& names, const HeadCounts& heads, int64_t width);
/// The same where one weight holds all three.
std::vector<WeightPiece> fused_qkv_weights(const std::string& name, const HeadCounts& heads, int64_t width);

}  // namespace weft
