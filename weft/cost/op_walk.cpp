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

void walk_weight_gradient(int64_t rows, int64_t in, int64_t out, const WalkContext& context) {
  if (context.adds_in_place || context.has_own_kernels()) return walk_weight_product(rows, in, out, context);
  const CountedTensor product = context.make(in * out * context.element_bytes);
  walk_weight_product(rows, in, out, context);
  const CountedTensor converted = context.make(in * out * context.exact_bytes);
}

namespace {

/// Rows that a weight's gradient reads, made of those that were kept.
using MakeRows = std::function<CountedTensor(const CountedTensor& kept)>;

CountedTensor walk_base_product(const CountedTensor& own, const LinearShape& shape, const MakeRows& make_rows,
                                const WalkContext& context) {
  CountedTensor y = context.rows_of(shape.rows, shape.out);
  walk_product(shape.rows, shape.in, shape.out, context);
  const CountedTensor kept = context.trains ? own : CountedTensor();
  context.add_step([kept, shape, make_rows, context](const CountedTensor& dy) {
    const auto make_gradients = [kept, shape, make_rows, context] {
      if (context.trains) {
        const CountedTensor rows = make_rows(kept);
        walk_weight_gradient(shape.rows, shape.in, shape.out, context);
      }
      if (shape.has_bias && context.trains_bias) make_bias_gradient(shape.out, context);
    };
    const bool has_weights = context.trains || (shape.has_bias && context.trains_bias);
    if (has_weights && context.queue != nullptr) {
      context.queue->push_back([dy, make_gradients] { make_gradients(); });
    } else if (has_weights) {
      make_gradients();
    }
    if (!context.passes_on) return CountedTensor();
    CountedTensor dx = context.rows_of(shape.rows, shape.in);
    walk_product(shape.rows, shape.out, shape.in, context);
    return dx;
  });
  return y;
}

/// Rows some of whose elements are dropped, as they are made in passing.
CountedTensor dropped_rows(int64_t rows, int64_t width, const WalkContext& context) {
  const CountedTensor factors = walk_drawn_factors(rows * width, context.element_bytes, context);
  return context.rows_of(rows, width);
}

void walk_adapter_gradients(const CountedTensor& kept, const LinearShape& shape, const MakeRows& make_rows,
                            const WalkContext& context) {
  const AdapterShape& adapter = *shape.adapter;
  if (adapter.trains_down) {
    CountedTensor rows = make_rows(kept);
    if (adapter.dropout > 0) rows = dropped_rows(shape.rows, shape.in, context);
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

/// What an adapter does beside its product, of whose rows `own` are kept. The gradient that it has for them is put into
/// `of_rows`, before the product makes its own.
void walk_adapter(const CountedTensor& own, const LinearShape& shape, const MakeRows& make_rows,
                  const std::shared_ptr<CountedTensor>& of_rows, const WalkContext& context) {
  const AdapterShape adapter = *shape.adapter;
  CountedTensor dropped, narrow;
  if (adapter.dropout > 0) dropped = dropped_rows(shape.rows, shape.in, context);
  narrow = context.rows_of(shape.rows, adapter.width);
  walk_product(shape.rows, shape.in, adapter.width, context);
  {
    const CountedTensor parts = context.rows_of(shape.rows, shape.out);
    walk_product(shape.rows, adapter.rank, shape.out, context);
    CountedTensor wide;
    if (adapter.stretches > 1) wide = context.rows_of(shape.rows, shape.out);
  }
  const CountedTensor kept = adapter.trains_down ? own : CountedTensor();
  const CountedTensor kept_narrow = adapter.trains_up ? narrow : CountedTensor();
  if (!adapter.is_trained() && !context.passes_on) return;
  context.add_step([=](const CountedTensor& dy) {
    CountedTensor of_narrow = context.rows_of(shape.rows, adapter.width);
    walk_product(shape.rows, shape.out, adapter.rank, context);
    if (adapter.width > adapter.rank) context.rows_of(shape.rows, adapter.rank);
    const auto make_gradients = [kept, shape, make_rows, context] {
      walk_adapter_gradients(kept, shape, make_rows, context);
    };
    if (adapter.is_trained() && context.queue != nullptr) {
      context.queue->push_back([dy, of_narrow, kept_narrow, make_gradients] { make_gradients(); });
    } else if (adapter.is_trained()) {
      make_gradients();
    }
    if (context.passes_on) {
      *of_rows = context.rows_of(shape.rows, shape.in);
      walk_product(shape.rows, adapter.width, shape.in, context);
      of_narrow.reset();
      if (adapter.dropout > 0) *of_rows = dropped_rows(shape.rows, shape.in, context);
    }
    return dy;
  });
}

CountedTensor walk_product_of(const CountedTensor& own, const LinearShape& shape, const MakeRows& make_rows,
                              const WalkContext& context) {
  if (!shape.adapter) return walk_base_product(own, shape, make_rows, context);
  const auto of_rows = std::make_shared<CountedTensor>();
  context.add_step([of_rows, context](const CountedTensor& of_product) {
    return added_gradient(std::exchange(*of_rows, {}), of_product, context);
  });
  CountedTensor y = walk_base_product(own, shape, make_rows, context);
  walk_adapter(own, shape, make_rows, of_rows, context);
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
  return first.is_shared() ? context.make(first.bytes()) : first;
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
