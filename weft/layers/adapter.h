#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "weft/layers/linear.h"

namespace weft {

/// A low-rank change of a weight that is not trained itself (LoRA): products with the weight add
/// scale · (x · downᵀ) · upᵀ. Where the weight is made of several, one below the other, those of them that have an
/// adapter each have `rank` rows of `down` and the rows of `up` beside their own.
struct Adapter {
  ParameterPtr down;  ///< [rank of each part, in]
  ParameterPtr up;    ///< [out, rank]; rows of parts without an adapter are zero
  int64_t rank = 0;
  double scale = 1;
  double dropout = 0;  ///< of what `down` takes in
  /// By piece of `up`, or of one of its experts: the part of `down` that it continues; -1: none.
  std::vector<int64_t> part_of_piece;
  int64_t number = 0;  ///< that dropout tells adapters apart by

  bool is_trainable() const { return down->is_trainable() || up->is_trainable(); }
};

/// One product of rows with a weight and its adapter, as a linear layer's forward and backward ask for it.
struct AdapterUse {
  std::shared_ptr<const Adapter> adapter;
  ArrangeRows drop;  ///< what `down` takes in, of the rows that the weight takes; nothing: the same

  /// Adds to y what the adapter gives for rows x, and returns x · downᵀ, which the backward wants.
  at::Tensor add_to(const at::Tensor& y, const at::Tensor& x) const;
  /// The gradient of x · downᵀ.
  at::Tensor narrow_gradient(const at::Tensor& dy) const;
  /// Adds to dx what goes back through the adapter.
  void add_to_gradient(const at::Tensor& dx, const at::Tensor& d_narrow) const;
  /// Gradients of its weights; `whole` are the rows x.
  void add_weight_gradients(const at::Tensor& whole, const at::Tensor& narrow, const at::Tensor& d_narrow,
                            const at::Tensor& dy) const;
};
/// The weight's adapter in a pass; nothing where it has none.
std::optional<AdapterUse> adapter_use(const Parameter& weight, const RunContext& context);

/// The same for experts, whose adapters are [experts, …] and whose rows are sorted by expert, `counts` of them for
/// each.
at::Tensor add_expert_adapter(const at::Tensor& y, const at::Tensor& x, const Adapter& adapter,
                              const std::vector<int64_t>& counts, const RunContext& context);

/// What the adapter adds to its weight.
at::Tensor adapter_product(const Adapter& adapter);

}  // namespace weft
