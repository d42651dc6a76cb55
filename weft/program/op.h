#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "weft/program/activation.h"

namespace weft {

/// A matrix product with a weight: rows × in → rows × out. `experts` > 1 are experts, each with a weight of its own;
/// every row goes to one of them.
struct Matmul {
  int64_t in = 0;
  int64_t out = 0;
  int64_t bias_elements = 0;
  int64_t experts = 1;
  int64_t packed = 1;  ///< equal matrices beside each other along the output, each cut by itself: a gate's and an up's
  int64_t unit = 1;    ///< elements of the cut side that stay together, where it is not made of heads
  bool is_tied = false;  ///< the weight belongs to the embedding; it is counted there
  /// The side that tensor parallelism cuts is made of heads of so many elements, and is cut between them; 0: anywhere.
  int64_t head_dim = 0;
  int64_t heads = 0;     ///< of queries on that side
  int64_t kv_heads = 0;  ///< that these queries use; what that side holds of keys and values comes after its queries
};

/// Which pairs of tokens of one sequence see each other.
enum class Mask {
  kFull,      ///< all
  kCausal,    ///< each sees itself and what came before
  kSliding,   ///< causal, at most `window` tokens back (itself included)
  kWindowed,  ///< all inside consecutive windows of `window` tokens, the last one possibly shorter
};

struct Attention {
  int64_t heads = 0;
  int64_t kv_heads = 0;
  int64_t head_dim = 0;
  Mask mask = Mask::kFull;
  int64_t window = 0;  ///< tokens; for kSliding and kWindowed
  double dropout = 0;  ///< probability that a weight between two rows is dropped
};

/// Root-mean-square norm, or layer norm where there is a bias, of `groups` equal parts of a row, which share one weight
/// of `width` elements.
struct Norm {
  int64_t width = 0;
  int64_t groups = 1;
  bool has_bias = false;
  double epsilon = 0;
};

/// An operator that is bound by memory traffic: activation, gating, rotary embedding, residual sum, pooling.
struct Pointwise {
  int64_t elements_in = 0;                    ///< per row
  int64_t elements_out = 0;                   ///< per row
  int64_t dropped = 0;                        ///< elements per row that dropout masks, at a byte each
  bool is_sum = false;                        ///< its gradient is its output's, so that going back costs nothing
  double dropout = 0;                         ///< probability that one of them is dropped
  Activation activation = Activation::kSilu;  ///< of an operator that is one
  int64_t scales = 0;                         ///< elements of a weight that rows are multiplied by
  double fresh_scale = 1;                     ///< what each of them is in a fresh model
};

/// A table of `entries` rows of `width` elements. Each input row reads one of them.
struct Lookup {
  int64_t entries = 0;
  int64_t width = 0;
  int64_t zero_row = -1;  ///< an entry that is zero when the table is fresh and is not trained: padding
};

/// Softmax and cross entropy over `classes` logits a row.
struct CrossEntropy {
  int64_t classes = 0;
};

using OpShape = std::variant<Matmul, Attention, Norm, Pointwise, Lookup, CrossEntropy>;

/// What the elements of a row are.
enum class Features : uint8_t {
  kWidth,       ///< a layer's rows, and all else that stays whole: pixels, numbers of experts, an adapter's rank
  kHeads,       ///< queries, keys and values, or what attention makes of them
  kInner,       ///< the wide rows inside of an MLP
  kVocabulary,  ///< entries of a table, classes of logits
};

/// How tensor parallelism treats an operator.
enum class TensorSplit {
  kWhole,   ///< works on whole rows; sequence parallelism divides the rows
  kColumn,  ///< whole rows in, divided features out (weight cut along out)
  kRow,     ///< divided features in, a partial sum of whole rows out (weight cut along in, a table along its entries)
  kInside,  ///< divided features in and out: heads, or a slice of the MLP's width
};

/// What follows for an operator between these features where tensor parallelism cuts all but the width, by the table of
/// rules (rule.h).
TensorSplit split_between(Features in, Features out);

/// What an operator keeps from its forward for its backward: elements per row. `whole` parts are divided by sequence
/// parallelism, `divided` parts by tensor parallelism.
struct Saved {
  int64_t whole = 0;    ///< in compute precision
  int64_t divided = 0;  ///< in compute precision
  int64_t whole_fp32 = 0;
  int64_t divided_fp32 = 0;
};

/// Rows that an operator works on, per token of its module: 1/4 after a 2×2 merge, 8 for eight experts a token.
struct RowsPerToken {
  int64_t numerator = 1;
  int64_t denominator = 1;

  double value() const { return of(1); }
  double of(double tokens) const { return tokens * static_cast<double>(numerator) / static_cast<double>(denominator); }
  bool operator==(const RowsPerToken&) const = default;
};

/// What weight files call the weights of an operator, below the path of its block, and how these lie in them. Which
/// part of them a rank has follows from the operator's shape and split.
struct OpWeights {
  std::vector<std::string> names;  ///< without ".weight", one below the other in it; "{}" is the number of an expert
  std::vector<std::string> bias_names = {};  ///< where they are not the same; an empty one is of rows that stay zero
  bool is_transposed = false;                ///< files have a matrix's inputs along its first dim
  std::vector<int64_t> row_dims = {};        ///< of a row, where files give it several: a convolution's
  bool are_bare = false;                     ///< nothing comes after the names
  std::vector<int64_t> shape = {};           ///< of a table that is never cut, where files give it another than it has
};

/// The dim of a weight that tensor parallelism cuts, between so many elements that stay together.
struct HeldCut {
  size_t dim = 0;
  int64_t unit = 1;

  bool operator==(const HeldCut&) const = default;
};

/// What a tensor-parallel rank holds of an operator's weights; nothing: all of one. A product's weight has its outputs
/// along the first dim, a table its entries.
struct HeldWeights {
  std::optional<HeldCut> weight;
  std::optional<HeldCut> bias;
  /// Of weights that are packed: each is divided into so many shares, and the first share of all of them lies before
  /// the second ones. 0: nothing is packed.
  int64_t shares = 0;

  bool operator==(const HeldWeights&) const = default;
};

/// One operator of a block, as the cost model prices it and the runtime runs it.
struct Op {
  std::string name;
  OpShape shape;
  Features in = Features::kWidth;   ///< of the rows that it reads; of a table, its entries
  Features out = Features::kWidth;  ///< of the rows that it makes
  RowsPerToken rows;
  Saved saved;
  /// Sequence parallelism does not divide its rows: those of experts, their router, the loss, and a norm of merged
  /// rows.
  bool has_whole_rows = false;
  std::shared_ptr<const OpWeights> weights = nullptr;  ///< nothing: files have none of it
  /// Of an exit's operator: it begins a branch, whose input is what this layer gave; -1: it goes on from the one
  /// before.
  int64_t branches_from = -1;
  /// Of an operator of a program, as the program's strategy says; nothing: as split() says.
  std::optional<HeldWeights> held = {};

  TensorSplit split() const { return split_between(in, out); }
};

/// Whether it is a table whose entries tensor parallelism divides.
inline bool is_divided_table(const Op& op) {
  return std::holds_alternative<Lookup>(op.shape) && op.split() == TensorSplit::kRow;
}

/// What a tensor-parallel rank holds of the weights of an operator that is no product.
HeldWeights held_by(const Op& op);

/// Whether it chooses experts for rows.
inline bool is_router(const Op& op) {
  return op.name == "moe.router";
}

/// Whether a norm has the gradients of divided features alone, its own or those of the product behind it: then a whole
/// copy of its weight has a summand of the gradient.
inline bool sees_divided(const Op& norm) {
  if (norm.held) return false;  // a program sums gradients itself
  return norm.split() == TensorSplit::kInside || norm.has_whole_rows;
}

/// Whether it has weights of its own; a head that is tied has not.
bool has_weights(const Op& op);

/// Trainable elements of the operator's own weights. Of models that were read it fits 64 bits, with all others of them
/// (find_too_large in weft/spec/model_size.h).
int64_t num_parameters(const Op& op);

/// The same but for rounding, of any sizes.
double estimated_parameters(const Op& op);

}  // namespace weft
