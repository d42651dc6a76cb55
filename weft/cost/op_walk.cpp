#include "weft/cost/op_walk.h"

#include <algorithm>

#include "weft/mesh/head_share.h"

namespace weft {
namespace {

void make_bias_gradient(int64_t elements, const WalkContext& context) {
  const CountedTensor sum = context.make(elements * context.element_bytes);
}

/// The gradient of `normed` rows, in exact numbers.
CountedTensor rms_backward(int64_t rows, int64_t width, const WalkContext& context) {
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
  if (!context.is_half()) return context.rows_of(rows, width);
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

void walk_product(int64_t rows, int64_t in, int64_t out, const WalkContext& context) {
  if (!context.is_half() || rows == 0) return;
  constexpr int64_t kTiles = 64 << 10;
  context.count->pass(kTiles + context.element_bytes * (rows * in + in * out) + context.exact_bytes * rows * out);
}

void walk_weight_product(int64_t rows, int64_t in, int64_t out, const WalkContext& context) {
  walk_product(in, rows, out, context);
}

void walk_weight_gradient(int64_t rows, int64_t in, int64_t out, const WalkContext& context) {
  if (context.adds_in_place) return walk_weight_product(rows, in, out, context);
  const CountedTensor product = context.make(in * out * context.element_bytes);
  walk_weight_product(rows, in, out, context);
  const CountedTensor converted = context.make(in * out * context.exact_bytes);
}

namespace {

/// Rows that a weight's gradient reads, made of those that were kept.
using MakeRows = std::function<CountedTensor(const CountedTensor& kept)>;

CountedTensor walk_product_of(const CountedTensor& own, const LinearShape& shape, const MakeRows& make_rows,
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

}  // namespace

CountedTensor walk_linear(const CountedTensor& x, const LinearShape& shape, const WalkContext& context) {
  return walk_product_of(
      x, shape, [](const CountedTensor& kept) { return kept; }, context);
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

namespace {

/// The calls of an attention kernel: with as many keys as queries a run of equal segments is one call, else each
/// segment is.
struct KernelCall {
  int64_t length = 0;  ///< of queries
  int64_t count = 1;
  int64_t keys = 0;  ///< as many as queries, or those that came from elsewhere

  int64_t queries() const { return length * count; }
};

std::vector<KernelCall> kernel_calls(const std::vector<int64_t>& segments, bool shares_keys) {
  std::vector<KernelCall> calls;
  for (const int64_t length : segments) {
    if (length == 0) continue;
    if (!shares_keys && !calls.empty() && calls.back().length == length) {
      ++calls.back().count;
    } else {
      calls.push_back({.length = length, .keys = length});
    }
  }
  return calls;
}

/// How many scores the fused kernel of a CPU has at a time.
struct KernelTile {
  explicit KernelTile(const KernelCall& call)
      : queries(std::min<int64_t>(call.length, call.length >= 768   ? 256
                                               : call.length >= 192 ? 64
                                                                    : 32)),
        keys(std::min<int64_t>(call.keys, 512)) {}

  int64_t queries;
  int64_t keys;

  int64_t scores() const { return queries * keys; }
};

/// Its own workspace, for each thread: scores, and of every query the largest, the sum and the output.
int64_t forward_workspace(const KernelCall& call, int64_t head_dim, const WalkContext& context) {
  const KernelTile tile(call);
  const int64_t exact = (tile.scores() + tile.queries * (2 + head_dim)) * context.exact_bytes;
  return context.kernel_threads * (exact + (context.is_half() ? tile.scores() * context.element_bytes : 0));
}

/// Scores and their gradients.
int64_t backward_workspace(const KernelCall& call, int64_t head_dim, const WalkContext& context) {
  const KernelTile tile(call);
  int64_t bytes = (2 * tile.scores() + tile.queries) * context.exact_bytes;
  if (context.is_half())
    bytes += 3 * tile.scores() * context.element_bytes + tile.keys * head_dim * context.exact_bytes;
  return context.kernel_threads * bytes;
}

/// The products of its tiles.
void pack_tiles(const KernelCall& call, int64_t head_dim, const WalkContext& context) {
  const KernelTile tile(call);
  walk_product(std::max(tile.queries, head_dim), std::max(tile.keys, head_dim), tile.keys, context);
}

/// Rotating heads in place.
void rotate(int64_t rows, int64_t width, const WalkContext& context) {
  CountedTensor converted;
  if (context.is_half()) converted = context.exact_rows_of(rows, width);
  const CountedTensor turned = context.exact_rows_of(rows, width / 2);
}

struct AttentionState {
  CountedTensor out;
  CountedTensor log_sums;
};

/// Minus infinity where a row does not see another one.
CountedTensor hide_keys(int64_t length, const Attention& attention, const WalkContext& context) {
  if (attention.mask != Mask::kSliding || length <= attention.window) return {};
  const CountedTensor hidden = context.make(2 * length * length);
  return context.rows_of(length, length);
}

AttentionState attend(const LocalHeads& heads, const Attention& attention, const WalkContext& context) {
  const int64_t width = heads.queries * attention.head_dim;
  AttentionState state{.out = context.rows_of(context.whole_rows, width),
                       .log_sums = context.exact_rows_of(context.whole_rows, heads.queries)};
  for (const KernelCall& call : kernel_calls(*context.segments, heads.queries != heads.keys)) {
    const CountedTensor mask = hide_keys(call.length, attention, context);
    const CountedTensor out = context.rows_of(call.length * call.count, width);
    const CountedTensor log_sums = context.exact_rows_of(call.length * call.count, heads.queries);
    const CountedTensor workspace = context.make(forward_workspace(call, attention.head_dim, context));
    pack_tiles(call, attention.head_dim, context);
  }
  return state;
}

void attend_backward(const LocalHeads& heads, const Attention& attention, const WalkContext& context) {
  const int64_t width = heads.queries * attention.head_dim;
  for (const KernelCall& call : kernel_calls(*context.segments, heads.queries != heads.keys)) {
    const CountedTensor mask = hide_keys(call.length, attention, context);
    // Keys that several queries share have a gradient for each, which are summed.
    const CountedTensor gradients = context.rows_of(call.length * call.count, 3 * width);
    {
      CountedTensor in_order;
      if (heads.queries != heads.keys) in_order = context.rows_of(call.length, width);
      const CountedTensor workspace = context.make(backward_workspace(call, attention.head_dim, context));
      pack_tiles(call, attention.head_dim, context);
    }
    if (heads.queries != heads.keys)
      const CountedTensor sum = context.rows_of(call.length, heads.keys * attention.head_dim);
  }
}

/// Attention whose rows several ranks share: heads are exchanged for rows, and keys go round a ring.
class SharedAttention {
 public:
  SharedAttention(const LocalHeads& heads, const Attention& attention, const WalkContext& context)
      : heads_(heads), attention_(attention), context_(context), shared_(*context.shared) {
    const HeadShare own =
        share_of_heads({heads.queries, heads.keys, attention.head_dim}, shared_.ulysses, shared_.place);
    own_ = {.queries = own.num_heads, .keys = own.num_kv_heads};
    for (int64_t place = 0; place < shared_.ulysses; ++place) {
      const HeadShare share = share_of_heads({heads.queries, heads.keys, attention.head_dim}, shared_.ulysses, place);
      all_keys_ += share.num_kv_heads;
      copies_keys_ |= share.sharers > 1;
    }
  }

  /// Rows for heads.
  CountedTensor share_packed(const CountedTensor& qkv) const {
    return share(qkv, heads_.queries + 2 * all_keys_, own_.queries + 2 * own_.keys);
  }
  CountedTensor share_queries(const CountedTensor& x) const { return share(x, heads_.queries, own_.queries); }
  /// Heads for rows.
  CountedTensor return_queries(const CountedTensor& x) const {
    return give_back(x, own_.queries, heads_.queries, heads_.queries, false);
  }
  CountedTensor return_packed(const CountedTensor& x) const {
    return give_back(x, own_.queries + 2 * own_.keys, heads_.queries + 2 * all_keys_, heads_.queries + 2 * heads_.keys,
                     copies_keys_);
  }

  AttentionState attend() const {
    const int64_t width = own_.queries * dim();
    AttentionState state{.out = context_.exact_rows_of(shared_.group_rows, width),
                         .log_sums = context_.exact_rows_of(shared_.group_rows, own_.queries)};
    const auto attend_once = [&](const std::vector<KernelCall>& calls) {
      for (const KernelCall& call : calls) {
        const CountedTensor out = context_.rows_of(call.queries(), width);
        const CountedTensor log_sums = context_.exact_rows_of(call.queries(), 4 * own_.queries);
        CountedTensor workspace = context_.make(forward_workspace(call, dim(), context_));
        pack_tiles(call, dim(), context_);
        workspace.reset();
        if (context_.is_half()) const CountedTensor exact = context_.exact_rows_of(call.queries(), width);
      }
    };
    // The keys of the next step are on their way while those of one are used.
    CountedTensor next = keys_of(0);
    attend_once(own_calls());
    for (size_t step = 0; step < shared_.ring.size(); ++step) {
      const CountedTensor now = std::exchange(next, {});
      next = keys_of(step + 1);
      attend_once(calls_of(step));
    }
    if (context_.is_half()) state.out = context_.rows_of(shared_.group_rows, width);
    return state;
  }

  CountedTensor attend_backward() const {
    const int64_t width = own_.queries * dim();
    const CountedTensor gradient = context_.exact_rows_of(shared_.group_rows, (own_.queries + 2 * own_.keys) * dim());
    const auto attend_once = [&](const std::vector<KernelCall>& calls) {
      for (const KernelCall& call : calls) {
        const CountedTensor gradients = context_.rows_of(call.queries() + 2 * call.keys * call.count, width);
        CountedTensor in_order;
        if (own_.queries != own_.keys) in_order = context_.rows_of(call.length, width);
        CountedTensor workspace = context_.make(backward_workspace(call, dim(), context_));
        pack_tiles(call, dim(), context_);
        workspace.reset();
        if (context_.is_half())
          const CountedTensor exact = context_.exact_rows_of(std::max(call.queries(), call.keys * call.count), width);
      }
    };
    CountedTensor next = keys_of(0), returned;
    attend_once(own_calls());
    for (size_t step = 0; step < shared_.ring.size(); ++step) {
      const CountedTensor now = std::exchange(next, {});
      next = keys_of(step + 1);
      // Gradients for others' keys are made and sent, and those for own ones come back.
      const int64_t received = shared_.ring[step].received;
      CountedTensor theirs = context_.exact_rows_of(received, 2 * own_.keys * dim());
      attend_once(calls_of(step));
      if (context_.is_half()) theirs = context_.rows_of(received, 2 * own_.keys * dim());
      const CountedTensor back = context_.rows_of(shared_.ring[step].sent, 2 * own_.keys * dim());
      returned = context_.make(theirs.bytes() + back.bytes());
    }
    return context_.is_half() ? context_.rows_of(shared_.group_rows, (own_.queries + 2 * own_.keys) * dim()) : gradient;
  }

 private:
  int64_t dim() const { return attention_.head_dim; }
  std::vector<KernelCall> own_calls() const { return kernel_calls(*context_.segments, own_.queries != own_.keys); }
  std::vector<KernelCall> calls_of(size_t step) const {
    std::vector<KernelCall> calls;
    for (const auto& [queries, keys] : shared_.ring[step].blocks) calls.push_back({.length = queries, .keys = keys});
    return calls;
  }

  /// Keys and values of a step of the ring.
  CountedTensor keys_of(size_t step) const {
    if (step >= shared_.ring.size()) return {};
    return context_.rows_of(shared_.ring[step].sent + shared_.ring[step].received, 2 * own_.keys * dim());
  }

  CountedTensor share(const CountedTensor& x, int64_t all_heads, int64_t own_heads) const {
    if (shared_.ulysses == 1) return x;
    const CountedTensor sent = context_.rows_of(context_.whole_rows, all_heads * dim());
    CountedTensor received = context_.rows_of(shared_.group_rows, own_heads * dim());
    return shared_.is_scattered ? context_.rows_of(shared_.group_rows, own_heads * dim()) : received;
  }

  CountedTensor give_back(const CountedTensor& x, int64_t own_heads, int64_t all_heads, int64_t num_heads,
                          bool sums) const {
    if (shared_.ulysses == 1) return x;
    CountedTensor sent = x;
    if (shared_.is_scattered) sent = context_.rows_of(shared_.group_rows, own_heads * dim());
    const CountedTensor received = context_.rows_of(context_.whole_rows, all_heads * dim());
    if (!sums || !context_.is_half()) return context_.rows_of(context_.whole_rows, num_heads * dim());
    const CountedTensor exact = context_.exact_rows_of(context_.whole_rows, num_heads * dim());
    return context_.rows_of(context_.whole_rows, num_heads * dim());
  }

  LocalHeads heads_, own_;
  int64_t all_keys_ = 0;
  bool copies_keys_ = false;
  const Attention& attention_;
  const WalkContext& context_;
  const SharedRows& shared_;
};

CountedTensor walk_shared_attention(const CountedTensor& qkv, const LocalHeads& heads, const Attention& attention,
                                    bool has_rotary, const WalkContext& context) {
  const int64_t turning = (heads.queries + heads.keys) * attention.head_dim;
  if (has_rotary) rotate(context.whole_rows, turning, context);
  const SharedAttention walk(heads, attention, context);
  const CountedTensor shared = walk.share_packed(qkv);
  const AttentionState state = walk.attend();
  AttentionState kept;
  if (!context.recomputes_attention) kept = state;
  context.add_step([=](const CountedTensor& dy) {
    const SharedAttention back(heads, attention, context);
    const CountedTensor kept_rows = shared;
    AttentionState used = kept;
    if (context.recomputes_attention) used = back.attend();
    const CountedTensor dout = back.share_queries(dy);
    CountedTensor dqkv;
    {
      const CountedTensor of_shared = back.attend_backward();
      dqkv = back.return_packed(of_shared);
    }
    if (has_rotary) rotate(context.whole_rows, turning, context);
    return dqkv;
  });
  return walk.return_queries(state.out);
}

}  // namespace

CountedTensor walk_attention(const CountedTensor& qkv, const LocalHeads& heads, const Attention& attention,
                             bool has_rotary, const WalkContext& context) {
  if (context.shared) return walk_shared_attention(qkv, heads, attention, has_rotary, context);
  const int64_t rows = context.whole_rows;
  const int64_t turning = (heads.queries + heads.keys) * attention.head_dim;
  const int64_t packed = (heads.queries + 2 * heads.keys) * attention.head_dim;
  if (has_rotary) rotate(rows, turning, context);
  const AttentionState state = attend(heads, attention, context);
  AttentionState kept;
  if (!context.recomputes_attention) kept = state;
  context.add_step([=](const CountedTensor&) {
    const CountedTensor kept_qkv = qkv;
    AttentionState used = kept;
    if (context.recomputes_attention) used = attend(heads, attention, context);
    CountedTensor dqkv = context.rows_of(rows, packed);
    attend_backward(heads, attention, context);
    if (has_rotary) rotate(rows, turning, context);
    return dqkv;
  });
  return state.out;
}

}  // namespace weft
