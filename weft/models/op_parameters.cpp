#include "weft/models/op_parameters.h"

#include <cmath>

#include "weft/base/check.h"
#include "weft/layers/adapter.h"
#include "weft/program/adapter_ops.h"
#include "weft/program/dropping_ops.h"
#include "weft/program/name_weights.h"
#include "weft/program/program_blocks.h"

namespace weft {
namespace {

/// A weight, or, as it lies in files, a part of one: rows of it with how they are cut.
struct PieceRows {
  int64_t rows = 0;
  WeightCut cut;
};

HeadCounts heads_of(const Matmul& m) {
  return {.heads = m.heads, .kv_heads = m.kv_heads, .head_dim = m.head_dim};
}

WeightCut together(WeightCut cut, int64_t num_elements) {
  cut.num_together = num_elements;
  return cut;
}

WeightCut cut_of(const std::optional<HeldCut>& held) {
  if (!held) return {};
  return {.unit = CutUnit::kElements, .dim = held->dim, .num_together = held->unit};
}

/// Rows of the weights that lie in one: queries, keys and values, or a gate and what it opens.
std::vector<int64_t> packed_rows(const Matmul& m) {
  if (m.kv_heads == 0) return std::vector<int64_t>(static_cast<size_t>(m.packed), m.out / m.packed);
  return {m.heads * m.head_dim, m.kv_heads * m.head_dim, m.kv_heads * m.head_dim};
}

/// The parts along the output of a product that each have a cut of their own.
std::vector<PieceRows> output_parts(const Op& op, const Matmul& m) {
  if (op.held && op.held->shares == 0) return {{m.out, cut_of(op.held->weight)}};
  if (op.held) {
    std::vector<PieceRows> parts;
    for (const int64_t rows : packed_rows(m)) parts.push_back({rows, cut_of(op.held->weight)});
    return parts;
  }
  if (op.split() != TensorSplit::kColumn) return {{m.out, {}}};
  if (m.head_dim == 0)
    return std::vector<PieceRows>(static_cast<size_t>(m.packed),
                                  {.rows = m.out / m.packed, .cut = together(kCutOutputs, m.unit)});
  const int64_t q = m.heads * m.head_dim, kv = m.kv_heads * m.head_dim;
  const WeightCut by_query{.unit = CutUnit::kQueryHeads, .heads = heads_of(m)};
  const WeightCut by_key{.unit = CutUnit::kKeyHeads, .heads = heads_of(m)};
  return {{q, by_query}, {kv, by_key}, {kv, by_key}};
}

/// How a row-cut product's weight is cut, along its inputs.
WeightCut input_cut(const Op& op, const Matmul& m) {
  if (op.split() != TensorSplit::kRow) return {};
  if (m.head_dim == 0) return together(kCutInputs, m.unit);
  return {.unit = CutUnit::kQueryHeads, .dim = 1, .heads = heads_of(m)};
}

std::vector<int64_t> with_rows(int64_t rows, const std::vector<int64_t>& row_dims) {
  std::vector<int64_t> shape = {rows};
  shape.insert(shape.end(), row_dims.begin(), row_dims.end());
  return shape;
}

/// Parts that lie in one weight of the files, one below the other, or in a weight each.
std::vector<WeightPiece> pieces_of(const std::vector<std::string>& names, const std::vector<PieceRows>& parts,
                                   const std::vector<int64_t>& row_dims) {
  std::vector<WeightPiece> pieces;
  int64_t whole = 0;
  for (const PieceRows& part : parts) whole += part.rows;
  WEFT_CHECK(names.size() == 1 || names.size() == parts.size(), "{} names for {} parts of a weight", names.size(),
             parts.size());
  int64_t begin = 0;
  for (size_t i = 0; i < parts.size(); ++i) {
    const auto& [rows, cut] = parts[i];
    if (names.size() == 1) {
      pieces.push_back(
          {.name = names[0], .shape = with_rows(whole, row_dims), .first_row = begin, .num_rows = rows, .cut = cut});
    } else if (names[i].empty()) {
      pieces.push_back(zero_rows(rows));
      pieces.back().shape = with_rows(rows, row_dims);
      pieces.back().cut = cut;
    } else {
      pieces.push_back(whole_weight(names[i], with_rows(rows, row_dims), cut));
    }
    begin += rows;
  }
  return pieces;
}

/// The same pieces in the order of a program: the first share of each before the second ones.
std::vector<WeightPiece> in_shares(const std::vector<WeightPiece>& pieces, int64_t shares) {
  if (shares == 0) return pieces;
  std::vector<WeightPiece> ordered;
  for (int64_t share = 0; share < shares; ++share) {
    for (const WeightPiece& whole : pieces) {
      WeightPiece& piece = ordered.emplace_back(whole);
      piece.num_rows = whole.num_rows / shares;
      piece.first_row = whole.first_row + share * piece.num_rows;
      if (piece.name.empty()) {
        piece.first_row = 0;
        piece.shape.front() = piece.num_rows;
      }
      if (piece.cut.unit == CutUnit::kElements && piece.cut.dim == 0)
        piece.cut = {.unit = CutUnit::kShares, .share = share, .num_shares = shares};
    }
  }
  return ordered;
}

std::vector<std::string> full_names(const std::vector<std::string>& names, const std::string& path, const char* ending,
                                    int64_t copy = 0) {
  std::vector<std::string> full;
  for (const std::string& name : names) full.push_back(name.empty() ? name : path + numbered(name, copy) + ending);
  return full;
}

AttentionMask mask_of(const Attention& a) {
  const bool is_causal = a.mask == Mask::kCausal || a.mask == Mask::kSliding;
  return {.is_causal = is_causal, .window = a.mask == Mask::kSliding ? a.window : 0};
}

AttentionLayer make_attention(const OpParameterMaker& make) {
  const auto& core = std::get<Attention>(op_named(make.block(), "attention.core").shape);
  AttentionLayer layer{.heads = {.heads = core.heads, .kv_heads = core.kv_heads, .head_dim = core.head_dim},
                       .mask = mask_of(core),
                       .dropout = core.dropout};
  const OpParameters qkv = make.make("attention.qkv");
  layer.qkv = qkv.weight;
  layer.qkv_bias = qkv.bias;
  if (const Op* norm = find_op(make.block(), "attention.q_norm")) {
    layer.q_norm = make.make(*norm).weight;
    layer.k_norm = make.make("attention.k_norm").weight;
    layer.norm_epsilon = std::get<Norm>(norm->shape).epsilon;
    layer.norms_rows = std::get<Norm>(norm->shape).groups == 1;
  }
  const OpParameters out = make.make("attention.out");
  layer.out = out.weight;
  layer.out_bias = out.bias;
  return layer;
}

}  // namespace

OpParameters OpParameterMaker::make(const Op& op) const {
  WEFT_CHECK(op.weights != nullptr, "{} has no weights", op.name);
  if (const auto* matmul = std::get_if<Matmul>(&op.shape))
    return matmul->experts > 1 ? make_experts(op, *matmul) : make_matmul(op, *matmul);
  const std::vector<std::string> weight = full_names(op.weights->names, path_, op.weights->are_bare ? "" : ".weight");
  OpParameters made;
  if (const auto* pointwise = std::get_if<Pointwise>(&op.shape)) {
    made.weight = maker_.make({.pieces = pieces_of(weight, {{pointwise->scales, cut_of(held_by(op).weight)}}, {}),
                               .shape = {pointwise->scales},
                               .init = Initialization::constant(pointwise->fresh_scale),
                               .has_whole_gradient = op.held.has_value()});
    return made;
  }
  if (const auto* table = std::get_if<Lookup>(&op.shape)) {
    ParameterSpec spec{.pieces = pieces_of(weight, {{table->entries, cut_of(held_by(op).weight)}}, {table->width}),
                       .shape = {table->entries, table->width},
                       .init = Initialization::normal(deviation_)};
    if (!op.weights->shape.empty()) spec.pieces = {whole_weight(weight.front(), op.weights->shape)};
    spec.init.zero_row = table->zero_row;
    made.weight = maker_.make(std::move(spec));
    return made;
  }
  const auto& norm = std::get<Norm>(op.shape);
  made.weight = maker_.make({.pieces = pieces_of(weight, {{norm.width, cut_of(held_by(op).weight)}}, {}),
                             .shape = {norm.width},
                             .init = Initialization::ones(),
                             .sees_divided = sees_divided(op),
                             .has_whole_gradient = op.held.has_value()});
  if (norm.has_bias) {
    made.bias = maker_.make({.pieces = pieces_of(bias_names(*op.weights), {{norm.width, cut_of(held_by(op).bias)}}, {}),
                             .shape = {norm.width},
                             .init = Initialization::zeros(),
                             .sees_divided = sees_divided(op),
                             .has_whole_gradient = op.held.has_value()});
  }
  return made;
}

std::vector<std::string> OpParameterMaker::bias_names(const OpWeights& weights) const {
  return full_names(weights.bias_names.empty() ? weights.names : weights.bias_names, path_,
                    weights.are_bare ? "" : ".bias");
}

OpParameters OpParameterMaker::make_matmul(const Op& op, const Matmul& m) const {
  const OpWeights& weights = *op.weights;
  std::vector<PieceRows> parts = output_parts(op, m), bias_parts = parts;
  if (op.held) {
    for (PieceRows& part : bias_parts) part.cut = cut_of(op.held->bias);
  } else if (op.split() == TensorSplit::kRow) {
    parts.front().cut = input_cut(op, m);
  }
  const std::vector<int64_t> row_dims = weights.row_dims.empty() ? std::vector<int64_t>{m.in} : weights.row_dims;
  std::vector<WeightPiece> pieces =
      pieces_of(full_names(weights.names, path_, weights.are_bare ? "" : ".weight"), parts, row_dims);
  for (WeightPiece& piece : pieces) piece.is_transposed = weights.is_transposed;
  const int64_t shares = op.held ? op.held->shares : 0;
  OpParameters made;
  made.weight = maker_.make({.pieces = in_shares(pieces, shares),
                             .shape = {m.out, m.in},
                             .init = is_adapter(op) ? Initialization::zeros() : Initialization::normal(deviation_),
                             .sees_divided = sees_divided_product(op),
                             .has_whole_gradient = op.held.has_value()});
  if (m.bias_elements > 0) {
    made.bias = maker_.make({.pieces = in_shares(pieces_of(bias_names(weights), bias_parts, {}), shares),
                             .shape = {m.out},
                             .init = Initialization::zeros(),
                             .has_whole_gradient = op.held.has_value()});
  }
  if (!is_adapter(op)) made.weight->adapter = make_adapter(op);
  return made;
}

/// Parts of an adapter lie one below the other, each of its rank, and none of them is cut by itself.
ParameterPtr OpParameterMaker::make_down(const Op& op, const Matmul& m) const {
  const std::vector<std::string>& names = op.weights->names;
  const std::vector<PieceRows> parts(names.size(), {.rows = m.out / std::ssize(names), .cut = input_cut(op, m)});
  std::vector<WeightPiece> pieces;
  for (int64_t expert = 0; expert < m.experts; ++expert) {
    for (WeightPiece& piece : pieces_of(full_names(names, path_, ".weight", expert), parts, {m.in})) {
      piece.is_expert = m.experts > 1;
      pieces.push_back(std::move(piece));
    }
  }
  return maker_.make({.pieces = std::move(pieces),
                      .shape = m.experts > 1 ? std::vector{m.experts, m.out, m.in} : std::vector{m.out, m.in},
                      .init = Initialization::normal(1 / std::sqrt(3.0 * static_cast<double>(m.in))),
                      .sees_divided = sees_divided_product(op)});
}

std::shared_ptr<const Adapter> OpParameterMaker::make_adapter(const Op& op) const {
  const Op* down = find_op(block_, op.name + std::string(kAdapterDown));
  if (down == nullptr) return nullptr;
  const Op& up = op_named(block_, op.name + std::string(kAdapterUp));
  const auto& sum = std::get<Pointwise>(op_named(block_, op.name + std::string(kAdapterSum)).shape);
  Adapter adapter{.rank = std::get<Matmul>(up.shape).in, .scale = sum.fresh_scale, .dropout = sum.dropout};
  adapter.down = make_down(*down, std::get<Matmul>(down->shape));
  adapter.up = make(up).weight;
  // A number of its own, by its name, which is the same however the model is spread.
  uint64_t hash = 0xcbf29ce484222325ULL;
  for (const char letter : path_ + op.name) hash = (hash ^ static_cast<uint8_t>(letter)) * 0x100000001b3ULL;
  adapter.number = static_cast<int64_t>(hash >> 32);
  const std::vector<std::string>& names = up.weights->names;
  int64_t part = 0;
  // Those of one expert, whom the others are like.
  const ParameterSpec& spec = adapter.up->spec;
  const size_t num_pieces = spec.pieces.size() / (spec.shape.size() == 3 ? static_cast<size_t>(spec.shape.front()) : 1);
  for (size_t i = 0; i < num_pieces; ++i) {
    // Parts of one weight continue the same.
    const bool is_there = !names[names.size() == 1 ? 0 : i].empty();
    adapter.part_of_piece.push_back(!is_there ? -1 : names.size() == 1 ? 0 : part++);
  }
  return std::make_shared<const Adapter>(std::move(adapter));
}

OpParameters OpParameterMaker::make_experts(const Op& op, const Matmul& m) const {
  WEFT_CHECK(m.bias_elements == 0, "{} has a bias for every expert", op.name);
  std::vector<PieceRows> parts = output_parts(op, m);
  if (op.split() == TensorSplit::kRow) parts.front().cut = input_cut(op, m);
  std::vector<WeightPiece> pieces;
  for (int64_t expert = 0; expert < m.experts; ++expert) {
    for (WeightPiece& piece : pieces_of(full_names(op.weights->names, path_, ".weight", expert), parts, {m.in})) {
      piece.is_expert = true;
      piece.is_transposed = op.weights->is_transposed;
      pieces.push_back(std::move(piece));
    }
  }
  OpParameters made;
  made.weight = maker_.make({.pieces = std::move(pieces),
                             .shape = {m.experts, m.out, m.in},
                             .init = is_adapter(op) ? Initialization::zeros() : Initialization::normal(deviation_),
                             .sees_divided = sees_divided_product(op)});
  if (!is_adapter(op)) made.weight->adapter = make_adapter(op);
  return made;
}

NormLayer OpParameterMaker::norm(std::string_view name) const {
  const Op& op = op_named(block_, name);
  const OpParameters made = make(op);
  return {.weight = made.weight, .bias = made.bias, .epsilon = std::get<Norm>(op.shape).epsilon};
}

namespace {

ParameterPtr make_scale(const OpParameterMaker& make, const char* name) {
  return find_op(make.block(), name) != nullptr ? make.make(name).weight : ParameterPtr();
}

void add_attention_half(const OpParameterMaker& make, TransformerLayer& layer) {
  layer.attention_dropout = dropout_of(op_named(make.block(), "attention.sum"));
  layer.attention_norm = make.norm("attention.norm");
  layer.attention = make_attention(make);
  layer.attention.number = layer.number;
  layer.attention_scale = make_scale(make, "attention.scale");
}

void add_mlp_half(const OpParameterMaker& make, bool normalizes_expert_weights, TransformerLayer& layer) {
  const Block& block = make.block();
  layer.mlp_dropout = dropout_of(op_named(block, "mlp.sum"));
  layer.mlp_norm = make.norm("mlp.norm");
  const bool is_gated = find_op(block, "mlp.gate_up") != nullptr;
  const char* up_name = is_gated ? "mlp.gate_up" : "mlp.up";
  const Op& activation = op_named(block, "mlp.activation");
  if (find_op(block, "moe.router") != nullptr) {
    WEFT_CHECK(dropout_of(activation) == 0, "experts' rows have no numbers to draw {} of them by",
               dropout_of(activation));
    MoeLayer moe{.experts_per_token = op_named(block, "moe.dispatch").rows.numerator,
                 .normalizes_weights = normalizes_expert_weights};
    moe.router = make.make("moe.router").weight;
    moe.gate_up = make.make(up_name).weight;
    moe.down = make.make("mlp.down").weight;
    layer.moe = std::move(moe);
    layer.mlp_scale = make_scale(make, "mlp.scale");
    return;
  }
  layer.mlp = {.activation = std::get<Pointwise>(activation.shape).activation,
               .is_gated = is_gated,
               .dropout = dropout_of(activation),
               .number = layer.number};
  const OpParameters up = make.make(up_name);
  layer.mlp.up = up.weight;
  layer.mlp.up_bias = up.bias;
  const OpParameters down = make.make("mlp.down");
  layer.mlp.down = down.weight;
  layer.mlp.down_bias = down.bias;
  layer.mlp_scale = make_scale(make, "mlp.scale");
}

}  // namespace

TransformerLayer make_transformer_layer(const OpParameterMaker& make, int64_t number, bool normalizes_expert_weights) {
  const size_t num_ops = num_in_program(make.block());
  TransformerLayer layer;
  layer.number = number;
  if (num_ops == 0) add_attention_half(make, layer);
  if (num_ops < make.block().ops.size()) add_mlp_half(make, normalizes_expert_weights, layer);
  return layer;
}

}  // namespace weft
