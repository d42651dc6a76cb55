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

/// y with what the adapter adds for rows x, as `linear` gives it: gradients of its weights come with the backward, or
/// later if the context defers them. `own` are the rows to keep instead of x, and `gather_again` makes whole what was
/// kept.
at::Tensor add_adapter(const at::Tensor& y, const at::Tensor& x, const Adapter& adapter, const RunContext& context,
                       const std::optional<at::Tensor>& own = {}, const ArrangeRows& gather_again = {});

/// The same for experts, whose adapters are [experts, …] and whose rows are sorted by expert, `counts` of them for
/// each.
at::Tensor add_expert_adapter(const at::Tensor& y, const at::Tensor& x, const Adapter& adapter,
                              const std::vector<int64_t>& counts, const RunContext& context);

/// What the adapter adds to its weight.
at::Tensor adapter_product(const Adapter& adapter);

}  // namespace weft
