#pragma once

#include <optional>

#include "weft/cost/walk_context.h"
#include "weft/program/op.h"

namespace weft {

// Operators as the runtime composes them on a CPU, counted: each makes what its namesake in weft/layers makes, lets go
// of it in the same order, and leaves the same for the backward. Inputs are the caller's to let go of.

CountedTensor walk_rms_norm(const CountedTensor& x, int64_t rows, int64_t width, const WalkContext& context);
CountedTensor walk_layer_norm(const CountedTensor& x, int64_t rows, int64_t width, const WalkContext& context);
CountedTensor walk_norm(const CountedTensor& x, int64_t rows, const Norm& norm, const WalkContext& context);
/// Query heads and key heads of packed rows, values left as they are.
CountedTensor walk_norm_heads(const CountedTensor& qkv, int64_t rows, const LocalHeads& heads, int64_t head_dim,
                              const WalkContext& context);

/// Some heads of packed groups, so many of a row. `in_place`: the rows are used up.
CountedTensor walk_norm_group_heads(const CountedTensor& packed, int64_t rows, int64_t heads, int64_t head_dim,
                                    bool in_place, const WalkContext& context);

/// What a product with a weight, and the product that is its weight's gradient, may have in passing for factors of half
/// precision: these are packed and sums are exact, all at once or in parts, as the processor has it.
void walk_product(int64_t rows, int64_t in, int64_t out, const WalkContext& context);
void walk_weight_product(int64_t rows, int64_t in, int64_t out, const WalkContext& context);
/// The same of a product that is made for some of the rows at a time, apart, and then put in its place.
void walk_copied_product(int64_t rows, int64_t in, int64_t out, const WalkContext& context);
/// A weight's gradient: made in place, or made and then added to one of another type.
void walk_weight_gradient(int64_t rows, int64_t in, int64_t out, const WalkContext& context);

/// A low-rank adapter of a product, as one rank has it.
struct AdapterShape {
  int64_t rank = 0;
  int64_t width = 0;      ///< of what its first product gives: the ranks of all its parts
  int64_t stretches = 1;  ///< of the output, made one by one and then put together
  double dropout = 0;     ///< of what it takes in
  bool trains_down = true;
  bool trains_up = true;

  bool is_trained() const { return trains_down || trains_up; }
};

/// A matrix product with a weight.
struct LinearShape {
  int64_t rows = 0;
  int64_t in = 0;
  int64_t out = 0;
  bool has_bias = false;
  std::optional<AdapterShape> adapter = std::nullopt;
};
CountedTensor walk_linear(const CountedTensor& x, const LinearShape& shape, const WalkContext& context);

/// The same of an activation of `wide` rows, which is made again with its gradient: as own kernels do it. `behind` has
/// a way back where the activation's input has a gradient.
CountedTensor walk_activated_linear(const CountedTensor& wide, int64_t wide_width, const LinearShape& shape,
                                    const WalkContext& behind, const WalkContext& context);

// How many rows of a width there are between blocks and inside regions of tensor parallelism. They differ from the
// context's behind an encoder's merger.
struct SiteRows {
  int64_t between = 0;
  int64_t whole = 0;
  int64_t width = 0;
};
/// The same of rows that become whole for it, and of which it may take some or put several side by side. `before` has a
/// way back where the rows have a gradient.
CountedTensor walk_entered_linear(const CountedTensor& x, const SiteRows& rows, const LinearShape& shape,
                                  const WalkContext& before, const WalkContext& context);
CountedTensor walk_add_bias(const CountedTensor& x, int64_t width, const WalkContext& context);

/// Rows times a weight, element by element.
CountedTensor walk_scale(const CountedTensor& x, int64_t rows, int64_t width, const WalkContext& context);

CountedTensor walk_swiglu(const CountedTensor& gate_up, int64_t rows, int64_t inner, const WalkContext& context);
/// `slopes` are as many tensors more as the backward makes in passing.
CountedTensor walk_activation(const CountedTensor& x, int64_t rows, int64_t inner, int64_t slopes,
                              const WalkContext& context);

/// Numbers in single precision that say what dropout leaves, as a product in so many bytes an element takes them.
CountedTensor walk_drawn_factors(int64_t elements, int64_t bytes, const WalkContext& context);
/// Rows some of whose elements are dropped. Nothing is kept: the backward draws again.
CountedTensor walk_drop(const CountedTensor& x, int64_t rows, int64_t width, double probability,
                        const WalkContext& context);

/// Where a block's input goes on beside what is made of it.
class WalkedBranch {
 public:
  /// `context` has a way back where the input has a gradient.
  explicit WalkedBranch(const WalkContext& context);
  /// The input and what was made of it, added up; the context has a way back where either has a gradient.
  CountedTensor join(int64_t rows, int64_t width, const WalkContext& context);

 private:
  bool goes_back_;
  std::shared_ptr<CountedTensor> gradient_ = std::make_shared<CountedTensor>();
};

/// A gradient that comes from two sides. The first may be a part of wider rows; the second is not.
CountedTensor added_gradient(CountedTensor first, const CountedTensor& second, const WalkContext& context);

// Layout changes of tensor parallelism; nothing on one rank.
CountedTensor walk_enter(const CountedTensor& x, const SiteRows& rows, const WalkContext& context);
CountedTensor walk_leave(const CountedTensor& x, const SiteRows& rows, const WalkContext& context);
/// The same, and a bias that is added once ranks have summed; `sum` goes back where the summands have gradients.
CountedTensor walk_leave_with_bias(CountedTensor summand, const SiteRows& rows, bool has_bias, const WalkContext& sum,
                                   const WalkContext& context);
CountedTensor walk_sum(const CountedTensor& x, const SiteRows& rows, const WalkContext& context);
CountedTensor walk_divide(const CountedTensor& x, const SiteRows& rows, const WalkContext& context);
CountedTensor walk_gather(const CountedTensor& x, const SiteRows& rows, const WalkContext& context);

}  // namespace weft
