#include "weft/cost/op_walk.h"

#include <algorithm>

namespace weft {
namespace {

void make_bias_gradient(int64_t elements, const WalkContext& context) {
  const CountedTensor sum = context.make(elements * context.element_bytes);
}

/// The gradient of `normed` rows, in exact numbers.
CountedTensor rms_backward(int64_t rows, int64_t width, const WalkContext& context) {
  if (context.has_own_kernels()) return context.rows_of(rows, width);
  CountedTensor dy;
  if (context.is_half()) dy = context.exact_rows_of(rows, width);
  CountedTensor normed;
  {
    CountedTensor converted;
    if (context.is_half()) converted = context.exact_rows_of(rows, width);
    normed = context.exact_rows_of(rows, width);
  }
  if (context.trains) {
    const CountedTensor products = context.exact_rows_of(rows, width);
    const CountedTensor sum = context.exact_rows_of(1, width);
  }
  CountedTensor dx = context.exact_rows_of(rows, width);
  {
    const CountedTensor products = context.exact_rows_of(rows, width);
    const CountedTensor mean = context.exact_rows_of(rows, 1);
  }
  return context.is_half() ? context.rows_of(rows, width) : dx;
}

/// A norm's output.
CountedTensor rms_forward(int64_t rows, int64_t width, const WalkContext& context) {
  if (!context.is_half() || context.has_own_kernels()) return context.rows_of(rows, width);
  const CountedTensor converted = context.exact_rows_of(rows, width);
  const CountedTensor scaled = context.exact_rows_of(rows, width);
  return context.rows_of(rows, width);
}

}  // namespace

CountedTensor walk_rms_norm(const CountedTensor& x, int64_t rows, int64_t width, const WalkContext& context) {
  const CountedTensor scale = context.exact_rows_of(rows, 1);
  CountedTensor y = rms_forward(rows, width, context);
  context.add_step([x, scale, rows, width, context](const CountedTensor&) {
    CountedTensor dx = rms_backward(rows, width, context);
    return context.passes_on ? dx : CountedTensor();
  });
  return y;
}

CountedTensor walk_layer_norm(const CountedTensor& x, int64_t rows, int64_t width, const WalkContext& context) {
  const CountedTensor mean = context.rows_of(rows, 1), scale = context.rows_of(rows, 1);
  CountedTensor y = context.rows_of(rows, width);
  context.add_step([x, mean, scale, rows, width, context](const CountedTensor&) {
    const CountedTensor sums = context.exact_rows_of(2 * context.kernel_threads, width);
    const CountedTensor dweight = context.rows_of(2, width);
    return context.passes_on ? context.rows_of(rows, width) : CountedTensor();
  });
  return y;
}

CountedTensor walk_norm(const CountedTensor& x, int64_t rows, const Norm& norm, const WalkContext& context) {
  return norm.has_bias ? walk_layer_norm(x, rows, norm.width, context) : walk_rms_norm(x, rows, norm.width, context);
}

CountedTensor walk_norm_heads(const CountedTensor& qkv, int64_t rows, const LocalHeads& heads, int64_t head_dim,
                              const WalkContext& context) {
  const int64_t q = heads.queries * head_dim, k = heads.keys * head_dim;
  CountedTensor y = context.rows_of(rows, q + 2 * k);
  const CountedTensor scales = context.exact_rows_of(rows, heads.queries + heads.keys);
  rms_forward(rows, q, context);
  rms_forward(rows, k, context);
  context.add_step([=](const CountedTensor&) {
    const CountedTensor kept = qkv, kept_scales = scales;
    CountedTensor dx = context.rows_of(rows, q + 2 * k);
    rms_backward(rows, q, context);
    WalkContext keys = context;
    keys.trains = context.trains_bias;
    rms_backward(rows, k, keys);
    return context.passes_on ? dx : CountedTensor();
  });
  return y;
}

CountedTensor walk_norm_group_heads(const CountedTensor& packed, int64_t rows, int64_t heads, int64_t head_dim,
                                    bool in_place, const WalkContext& context) {
  const int64_t width = heads * head_dim;
  CountedTensor y = in_place ? packed : context.make(packed.bytes());
  const CountedTensor kept = context.rows_of(rows, width), scales = context.exact_rows_of(rows, heads);
  rms_forward(rows, width, context);
  context.add_step([=](const CountedTensor& dy) {
    const CountedTensor kept_heads = kept, kept_scales = scales;
    CountedTensor dx = dy.num_references() > 1 ? context.make(dy.bytes()) : dy;
    rms_backward(rows, width, context);
    return context.passes_on ? dx : CountedTensor();
  });
  return y;
}

namespace {

int64_t packed_bytes(int64_t rows, int64_t in, int64_t out, const WalkContext& context) {
  if (!context.is_half() || rows == 0 || !context.count->is_of_processor()) return 0;
  constexpr int64_t kTiles = 64 << 10;
  return kTiles + context.element_bytes * (rows * in + in * out) + context.exact_bytes * rows * out;
}

}  // namespace

void walk_product(int64_t rows, int64_t in, int64_t out, const WalkContext& context) {
  context.count->pass(packed_bytes(rows, in, out, context));
}

void walk_copied_product(int64_t rows, int64_t in, int64_t out, const WalkContext& context) {
  context.count->pass(rows * out * context.element_bytes + packed_bytes(rows, in, out, context));
}

void walk_weight_product(int64_t rows, int64_t in, int64_t out, const WalkContext& context) {
  walk_product(in, rows, out, context);
}

namespace {

/// The first product is the gradient, in exact numbers; others are added to it.
void add_gradient_apart(int64_t rows, int64_t in, int64_t out, const WalkContext& context) {
  CountedTensor& gradient = *context.apart;
  if (gradient.is_defined() && (!context.is_half() || context.has_own_kernels()))
    return walk_weight_product(rows, in, out, context);
  const CountedTensor product = context.make(in * out * context.element_bytes);
  walk_weight_product(rows, in, out, context);
  if (!gradient.is_defined()) gradient = context.is_half() ? context.make(in * out * context.exact_bytes) : product;
}

}  // namespace

void walk_weight_gradient(int64_t rows, int64_t in, int64_t out, const WalkContext& context) {
  if (context.apart != nullptr) return add_gradient_apart(rows, in, out, context);
  if (context.adds_in_place || context.has_own_kernels()) return walk_weight_product(rows, in, out, context);
  const CountedTensor product = context.make(in * out * context.element_bytes);
  walk_weight_product(rows, in, out, context);
  const CountedTensor converted = context.make(in * out * context.exact_bytes);
}

namespace {

/// Rows that a weight's gradient reads, made of those that were kept.
using MakeRows = std::function<CountedTensor(const CountedTensor& kept)>;

/// Rows some of whose elements are dropped, as they are made in passing.
CountedTensor dropped_rows(int64_t rows, int64_t width, const WalkContext& context) {
  const CountedTensor factors = walk_drawn_factors(rows * width, context.element_bytes, context);
  return context.rows_of(rows, width);
}

/// x · downᵀ, and what is added of it to the product's rows where they lie.
CountedTensor walk_adapter(const LinearShape& shape, const WalkContext& context) {
  CountedTensor dropped;
  if (shape.adapter->dropout > 0) dropped = dropped_rows(shape.rows, shape.in, context);
  CountedTensor narrow = context.rows_of(shape.rows, shape.adapter->width);
  walk_product(shape.rows, shape.in, shape.adapter->width, context);
  dropped.reset();
  walk_copied_product(shape.rows, shape.adapter->rank, shape.out, context);
  return narrow;
}

/// The gradient of x · downᵀ, put together of its parts.
CountedTensor walk_narrow_gradient(const LinearShape& shape, const WalkContext& context) {
  const AdapterShape& adapter = *shape.adapter;
  CountedTensor sum = context.rows_of(shape.rows, adapter.width);
  CountedTensor part;
  if (adapter.width > adapter.rank) part = context.rows_of(shape.rows, adapter.rank);
  walk_product(shape.rows, shape.out, adapter.rank, context);
  return sum;
}

void walk_adapter_gradients(const LinearShape& shape, const WalkContext& context) {
  const AdapterShape& adapter = *shape.adapter;
  if (adapter.trains_down) {
    CountedTensor dropped;
    if (adapter.dropout > 0) dropped = dropped_rows(shape.rows, shape.in, context);
    walk_weight_gradient(shape.rows, shape.in, adapter.width, context);
  }
  if (!adapter.trains_up) return;
  const int64_t elements = shape.out * adapter.rank;
  CountedTensor product = context.make(elements * context.element_bytes);
  walk_weight_product(shape.rows, adapter.rank, shape.out, context);
  if (adapter.stretches > 1) product = context.make(elements * context.element_bytes);
  CountedTensor converted;
  if (!context.adds_in_place) converted = context.make(elements * context.exact_bytes);
}

/// The product's own gradient of its rows is there already.
void walk_adapter_input_gradient(const LinearShape& shape, const WalkContext& context) {
  if (shape.adapter->dropout == 0) return walk_product(shape.rows, shape.adapter->width, shape.in, context);
  const CountedTensor whole = context.rows_of(shape.rows, shape.in);
  walk_product(shape.rows, shape.adapter->width, shape.in, context);
  const CountedTensor dropped = dropped_rows(shape.rows, shape.in, context);
}

CountedTensor walk_product_of(const CountedTensor& own, const LinearShape& shape, const MakeRows& make_rows,
                              const WalkContext& context) {
  CountedTensor y = context.rows_of(shape.rows, shape.out);
  walk_product(shape.rows, shape.in, shape.out, context);
  const bool has_adapter = shape.adapter.has_value();
  CountedTensor narrow = has_adapter ? walk_adapter(shape, context) : CountedTensor();
  if (has_adapter && !shape.adapter->trains_up) narrow.reset();
  const bool keeps_rows = context.trains || (has_adapter && shape.adapter->trains_down);
  const CountedTensor kept = keeps_rows ? own : CountedTensor();
  context.add_step([kept, narrow, shape, make_rows, has_adapter, context](const CountedTensor& dy) {
    const CountedTensor of_narrow = has_adapter ? walk_narrow_gradient(shape, context) : CountedTensor();
    const auto make_gradients = [kept, shape, make_rows, has_adapter, context] {
      const CountedTensor rows = kept.is_defined() ? make_rows(kept) : CountedTensor();
      if (context.trains) walk_weight_gradient(shape.rows, shape.in, shape.out, context);
      if (shape.has_bias && context.trains_bias) make_bias_gradient(shape.out, context);
      if (has_adapter) walk_adapter_gradients(shape, context);
    };
    const bool has_weights =
        context.trains || (shape.has_bias && context.trains_bias) || (has_adapter && shape.adapter->is_trained());
    if (has_weights && context.queue != nullptr) {
      context.queue->push_back([dy, narrow, of_narrow, make_gradients] { make_gradients(); });
    } else if (has_weights) {
      make_gradients();
    }
    if (!context.passes_on) return CountedTensor();
    CountedTensor dx = context.rows_of(shape.rows, shape.in);
    walk_product(shape.rows, shape.out, shape.in, context);
    if (has_adapter) walk_adapter_input_gradient(shape, context);
    return dx;
  });
  return y;
}

}  // namespace

CountedTensor walk_linear(const CountedTensor& x, const LinearShape& shape, const WalkContext& context) {
  return walk_product_of(
      x, shape, [](const CountedTensor& kept) { return kept; }, context);
}

CountedTensor walk_activated_linear(const CountedTensor& wide, int64_t wide_width, const LinearShape& shape,
                                    const WalkContext& behind, const WalkContext& context) {
  const bool has_weights = context.trains || (shape.has_bias && context.trains_bias);
  context.add_step([=](const CountedTensor& dy) {
    const CountedTensor kept = wide;
    const CountedTensor inner = context.rows_of(shape.rows, shape.in);  // its gradient first, then it again
    CountedTensor dwide = context.rows_of(shape.rows, wide_width);
    const auto make_gradients = [shape, context] {
      if (context.trains) walk_weight_gradient(shape.rows, shape.in, shape.out, context);
      if (shape.has_bias && context.trains_bias) make_bias_gradient(shape.out, context);
    };
    if (has_weights && context.queue != nullptr) {
      context.queue->push_back([inner, dy, make_gradients] { make_gradients(); });
    } else if (has_weights) {
      make_gradients();
    }
    return behind.way != nullptr ? dwide : CountedTensor();
  });
  const CountedTensor inner = context.rows_of(shape.rows, shape.in);
  return context.rows_of(shape.rows, shape.out);
}

CountedTensor walk_entered_linear(const CountedTensor& x, const SiteRows& rows, const LinearShape& shape,
                                  const WalkContext& before, const WalkContext& context) {
  const bool takes_some = shape.rows * shape.in < rows.whole * rows.width;
  CountedTensor whole = walk_enter(x, rows, before);
  if (takes_some) {
    whole = context.rows_of(shape.rows, shape.in);
    before.add_step([rows, before](const CountedTensor&) { return before.rows_of(rows.whole, rows.width); });
  }
  if (!context.divides_rows) return walk_linear(whole, shape, context);
  const auto gather_again = [=](const CountedTensor&) {
    CountedTensor gathered = context.rows_of(rows.whole, rows.width);
    return takes_some ? context.rows_of(shape.rows, shape.in) : gathered;
  };
  return walk_product_of(x, shape, gather_again, context);
}

CountedTensor walk_add_bias(const CountedTensor& x, int64_t width, const WalkContext& context) {
  context.add_step([width, context](const CountedTensor& dy) {
    if (context.trains_bias) make_bias_gradient(width, context);
    return dy;
  });
  return context.make(x.bytes());
}

CountedTensor walk_scale(const CountedTensor& x, int64_t rows, int64_t width, const WalkContext& context) {
  const CountedTensor kept = context.trains ? x : CountedTensor();
  context.add_step([kept, rows, width, context](const CountedTensor&) {
    if (context.trains) {
      const CountedTensor products = context.rows_of(rows, width);
      const CountedTensor sums = context.exact_rows_of(1, width);
    }
    return context.passes_on ? context.rows_of(rows, width) : CountedTensor();
  });
  return context.rows_of(rows, width);
}

CountedTensor walk_swiglu(const CountedTensor& gate_up, int64_t rows, int64_t inner, const WalkContext& context) {
  context.add_step([gate_up, rows, inner, context](const CountedTensor&) { return context.rows_of(rows, 2 * inner); });
  return context.rows_of(rows, inner);
}

CountedTensor walk_activation(const CountedTensor& x, int64_t rows, int64_t inner, int64_t slopes,
                              const WalkContext& context) {
  context.add_step([x, rows, inner, slopes, context](const CountedTensor&) {
    const CountedTensor slope = context.rows_of(slopes * rows, inner);
    return context.rows_of(rows, inner);
  });
  return context.rows_of(rows, inner);
}

CountedTensor walk_drawn_factors(int64_t elements, int64_t bytes, const WalkContext& context) {
  constexpr int64_t kDrawnBytes = 4;
  CountedTensor drawn = context.make(elements * kDrawnBytes);
  return bytes == kDrawnBytes ? drawn : context.make(elements * bytes);
}

CountedTensor walk_drop(const CountedTensor& x, int64_t rows, int64_t width, double probability,
                        const WalkContext& context) {
  if (probability == 0 || rows == 0) return x;
  const auto multiply = [rows, width, context] {
    const CountedTensor factors = walk_drawn_factors(rows * width, context.element_bytes, context);
    return context.rows_of(rows, width);
  };
  context.add_step([multiply](const CountedTensor&) { return multiply(); });
  return multiply();
}

CountedTensor added_gradient(CountedTensor first, const CountedTensor& second, const WalkContext& context) {
  if (!first.is_defined()) return second;
  if (!second.is_defined()) return first;
  // A part of wider rows is never added to where it lies.
  const bool is_part = first.bytes() != second.bytes();
  return is_part || first.is_shared() ? context.make(second.bytes()) : first;
}

WalkedBranch::WalkedBranch(const WalkContext& context) : goes_back_(context.way != nullptr) {
  context.add_step([gradient = gradient_, context](const CountedTensor& dy) {
    return added_gradient(std::exchange(*gradient, {}), dy, context);
  });
}

CountedTensor WalkedBranch::join(int64_t rows, int64_t width, const WalkContext& context) {
  context.add_step([gradient = gradient_, goes_back = goes_back_](const CountedTensor& dy) {
    if (goes_back) *gradient = dy;
    return dy;
  });
  return context.rows_of(rows, width);
}

CountedTensor walk_enter(const CountedTensor& x, const SiteRows& rows, const WalkContext& context) {
  if (!context.is_spread()) return x;
  const int64_t back = context.divides_rows ? rows.between : rows.whole;
  context.add_step([rows, back, context](const CountedTensor&) { return context.rows_of(back, rows.width); });
  return context.divides_rows ? context.rows_of(rows.whole, rows.width) : x;
}

CountedTensor walk_leave(const CountedTensor&, const SiteRows& rows, const WalkContext& context) {
  context.add_step([rows, context](const CountedTensor& dy) {
    return context.divides_rows ? context.rows_of(rows.whole, rows.width) : dy;
  });
  return context.rows_of(context.divides_rows ? rows.between : rows.whole, rows.width);
}

CountedTensor walk_leave_with_bias(CountedTensor summand, const SiteRows& rows, bool has_bias, const WalkContext& sum,
                                   const WalkContext& context) {
  const CountedTensor left = walk_leave(summand, rows, sum);
  summand.reset();
  return has_bias ? walk_add_bias(left, rows.width, context) : left;
}

CountedTensor walk_sum(const CountedTensor&, const SiteRows& rows, const WalkContext& context) {
  context.add_step([](const CountedTensor& dy) { return dy; });
  return context.rows_of(rows.whole, rows.width);
}

CountedTensor walk_divide(const CountedTensor& x, const SiteRows& rows, const WalkContext& context) {
  if (!context.divides_rows) return x;
  context.add_step([rows, context](const CountedTensor&) { return context.rows_of(rows.whole, rows.width); });
  return context.rows_of(rows.between, rows.width);
}

CountedTensor walk_gather(const CountedTensor& x, const SiteRows& rows, const WalkContext& context) {
  if (!context.divides_rows) return x;
  context.add_step([rows, context](const CountedTensor&) { return context.rows_of(rows.between, rows.width); });
  return context.rows_of(rows.whole, rows.width);
}

}  // namespace weft
