#pragma once

#include "weft/cost/op_walk.h"
#include "weft/spec/model.h"

namespace weft {

/// Which gradients an operator of a block has to do with.
struct OpNeeds {
  bool of_output = true;
  bool of_input = true;
  bool of_weight = true;
  bool of_bias = true;  ///< its second weight
};

/// A block and, by operator, the gradients that its backward makes; none said: all.
struct WalkedBlock {
  const Block& block;
  std::vector<OpNeeds> needs = {};

  const OpNeeds& needs_of(const Op& op) const;
  const OpNeeds& needs_of(std::string_view op) const { return needs_of(op_named(block, op)); }
  /// An operator's adapter; nothing where it has none.
  std::optional<AdapterShape> adapter_of(const Op& op) const;
  /// Whether the product itself has a gradient to give, its bias left out, which is added once ranks have summed.
  bool has_rows_gradient(const Op& op) const;
  /// How an operator is gone through.
  WalkContext at(const Op& op, const WalkContext& context) const;
  /// Of what an operator element by element gives, or of what a sum adds to a block's rows.
  double dropout_of(std::string_view op) const;
  WalkContext at(std::string_view op, const WalkContext& context) const { return at(op_named(block, op), context); }
};

/// One layer of a module.
struct LayerWalk : WalkedBlock {
  bool is_exchanged = false;  ///< its experts are shared out to ranks
  int64_t received_rows = 0;  ///< by experts here, where they are

  CountedTensor forward(const CountedTensor& x, const WalkContext& context) const;
  /// The second half, behind rows that the first gave.
  CountedTensor forward_mlp(const CountedTensor& attended, const WalkContext& context) const;
};

}  // namespace weft
