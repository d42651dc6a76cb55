#include "weft/models/transformer_weights.h"

namespace weft {
namespace {

/// A bias is a weight with one dim.
std::vector<int64_t> shape_of(int64_t rows, int64_t width) {
  return width == 0 ? std::vector<int64_t>{rows} : std::vector<int64_t>{rows, width};
}

}  // namespace

ParameterPtr WeightMaker::matrix(std::vector<WeightPiece> pieces, int64_t rows, int64_t columns) const {
  return maker.make({.pieces = std::move(pieces), .shape = {rows, columns}, .init = Initialization::normal(deviation)});
}

ParameterPtr WeightMaker::bias(std::vector<WeightPiece> pieces, int64_t rows) const {
  return maker.make({.pieces = std::move(pieces), .shape = {rows}, .init = Initialization::zeros()});
}

NormLayer WeightMaker::rms_norm(const std::string& name, int64_t width, double epsilon) const {
  return {.weight = maker.make(
              {.pieces = {whole_weight(name + ".weight", {width})}, .shape = {width}, .init = Initialization::ones()}),
          .bias = {},
          .epsilon = epsilon};
}

ParameterPtr WeightMaker::head_norm(const std::string& name, int64_t head_dim) const {
  return maker.make({.pieces = {whole_weight(name + ".weight", {head_dim})},
                     .shape = {head_dim},
                     .init = Initialization::ones(),
                     .sees_divided = true});
}

NormLayer WeightMaker::layer_norm(const std::string& name, int64_t width, double epsilon) const {
  NormLayer norm = rms_norm(name, width, epsilon);
  norm.bias = bias({whole_weight(name + ".bias", {width})}, width);
  return norm;
}

std::vector<WeightPiece> qkv_weights(const QkvNames& names, const HeadCounts& heads, int64_t width) {
  const int64_t q = heads.heads * heads.head_dim;
  const int64_t kv = heads.kv_heads * heads.head_dim;
  const WeightCut by_query{.unit = CutUnit::kQueryHeads, .heads = heads};
  const WeightCut by_key{.unit = CutUnit::kKeyHeads, .heads = heads};
  const auto piece = [&](const std::string& name, int64_t rows, WeightCut cut) {
    WeightPiece made = name.empty() ? zero_rows(rows) : whole_weight(name, shape_of(rows, width), cut);
    made.cut = cut;
    return made;
  };
  return {piece(names.q, q, by_query), piece(names.k, kv, by_key), piece(names.v, kv, by_key)};
}

std::vector<WeightPiece> fused_qkv_weights(const std::string& name, const HeadCounts& heads, int64_t width) {
  const int64_t q = heads.heads * heads.head_dim;
  const int64_t kv = heads.kv_heads * heads.head_dim;
  const std::vector<int64_t> shape = shape_of(q + 2 * kv, width);
  return {{.name = name,
           .shape = shape,
           .first_row = 0,
           .num_rows = q,
           .cut = {.unit = CutUnit::kQueryHeads, .heads = heads}},
          {.name = name,
           .shape = shape,
           .first_row = q,
           .num_rows = kv,
           .cut = {.unit = CutUnit::kKeyHeads, .heads = heads}},
          {.name = name,
           .shape = shape,
           .first_row = q + kv,
           .num_rows = kv,
           .cut = {.unit = CutUnit::kKeyHeads, .heads = heads}}};
}

}  // namespace weft
