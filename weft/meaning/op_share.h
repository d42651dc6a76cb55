#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "weft/mesh/attention_block.h"
#include "weft/plan/plan.h"
#include "weft/program/op.h"

namespace weft {

/// Which part of a module's operators is asked for: of one tensor-parallel rank or, where none is named, the most that
/// any of them has, of every operator by itself.
struct OpShare {
  int64_t tp = 1;
  int64_t ep = 1;
  bool experts_over_tp = false;
  std::optional<int64_t> tp_rank;
};

/// Of a module of a plan.
OpShare share_of(const ModulePlan& module, std::optional<int64_t> tp_rank = std::nullopt);

/// Whether an operator's weights are whole experts, which tensor parallelism does not cut.
inline bool has_whole_experts(const Op& op, bool experts_over_tp) {
  const auto* matmul = std::get_if<Matmul>(&op.shape);
  return experts_over_tp && matmul != nullptr && matmul->experts > 1;
}

/// A matrix product's own part.
struct LocalMatmul {
  int64_t in = 0;
  int64_t out = 0;
  int64_t experts = 1;  ///< experts on this rank
};
LocalMatmul local_matmul(const Matmul& matmul, TensorSplit split, const OpShare& share);

/// Who sees whom in a segment.
AttentionMask mask_of(const Attention& attention);

/// Query heads, and key (or value) heads, that a tensor-parallel rank has before Ulysses exchanges heads for rows.
struct LocalHeads {
  int64_t queries = 0;
  int64_t keys = 0;
};
LocalHeads local_heads(const Attention& attention, const OpShare& share);
/// The same once the busiest rank of its Ulysses group has taken its part of them.
LocalHeads heads_after_ulysses(const Attention& attention, const OpShare& share, int64_t ulysses);

/// Trainable elements of an operator on one rank, and the part of them that experts have (whose gradients are summed
/// over fewer ranks).
struct LocalParameters {
  int64_t dense = 0;
  int64_t expert = 0;

  int64_t total() const { return dense + expert; }
  LocalParameters& operator+=(const LocalParameters& other) {
    dense += other.dense;
    expert += other.expert;
    return *this;
  }
  friend LocalParameters operator*(int64_t copies, const LocalParameters& one) {
    return {.dense = copies * one.dense, .expert = copies * one.expert};
  }
};
LocalParameters local_parameters(const Op& op, const OpShare& share);

/// One weight of an operator on one rank.
struct LocalWeight {
  int64_t elements = 0;
  bool is_matrix = false;  ///< or has more dims than that; else a vector
  bool is_expert = false;
  bool is_product = false;    ///< of a matrix product, whose gradient may be made later than the backward
  bool is_whole = false;      ///< tensor-parallel ranks all have it
  bool sees_divided = false;  ///< but each its own part of what it is applied to: heads, or experts' gradients
  int64_t same_keys = 0;      ///< elements of key and value heads that other tensor-parallel ranks have, too
};
/// Adds an operator's weights to a list, in the order in which a block has them; a head that is tied has none.
void list_weights(const Op& op, const OpShare& share, std::vector<LocalWeight>& weights);

}  // namespace weft
