#include "weft/cost/attention_walk.h"

#include <algorithm>

#include "weft/cost/op_walk.h"
#include "weft/meaning/op_share.h"
#include "weft/mesh/context_blocks.h"
#include "weft/mesh/head_share.h"

namespace weft {
namespace {

/// A call of an attention kernel.
struct KernelCall {
  int64_t length = 0;  ///< of queries
  int64_t count = 1;
  int64_t keys = 0;
  AttentionBlock::Sees sees = AttentionBlock::Sees::kAll;

  int64_t queries() const { return length * count; }
  bool has_window() const { return sees == AttentionBlock::Sees::kWindow; }
  bool hides_keys() const { return sees != AttentionBlock::Sees::kAll; }
};

/// Of rows that are all here: a run of equal segments is one call or, where queries share keys, each segment is.
std::vector<KernelCall> kernel_calls(const std::vector<int64_t>& segments, bool shares_keys,
                                     const Attention& attention) {
  using Sees = AttentionBlock::Sees;
  const AttentionMask mask = mask_of(attention);
  std::vector<KernelCall> calls;
  for (const int64_t length : segments) {
    if (length == 0) continue;
    if (!shares_keys && !calls.empty() && calls.back().length == length) {
      ++calls.back().count;
      continue;
    }
    const Sees sees = mask.window > 0 && length > mask.window ? Sees::kWindow
                      : mask.is_causal                        ? Sees::kCausal
                                                              : Sees::kAll;
    calls.push_back({.length = length, .keys = length, .sees = sees});
  }
  return calls;
}

std::vector<KernelCall> calls_of(const std::vector<AttentionBlock>& blocks) {
  std::vector<KernelCall> calls;
  for (const AttentionBlock& block : blocks)
    calls.push_back(
        {.length = block.queries.size(), .count = block.count, .keys = block.keys.size(), .sees = block.sees});
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
  if (!context.count->is_of_processor()) return 0;
  const KernelTile tile(call);
  const int64_t exact = (tile.scores() + tile.queries * (2 + head_dim)) * context.exact_bytes;
  return context.kernel_threads * (exact + (context.is_half() ? tile.scores() * context.element_bytes : 0));
}

/// Scores and their gradients. A GPU's kernel sums up the queries' gradients exactly.
int64_t backward_workspace(const KernelCall& call, int64_t head_dim, int64_t queries, const WalkContext& context) {
  if (!context.count->is_of_processor())
    return context.is_half() ? call.length * call.count * queries * head_dim * context.exact_bytes : 0;
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

/// Blocks of attention put together of products, as dropout has it: all scores are there at once.
class ComposedCall {
 public:
  ComposedCall(const KernelCall& call, int64_t heads, int64_t head_dim, const WalkContext& context)
      : call_(call), width_(heads * head_dim), context_(context) {
    num_scores_ = call.queries() * heads * call.keys;
  }

  void forward() const {
    const CountedTensor factors = walk_drawn_factors(num_scores_, context_.exact_bytes, context_);
    const CountedTensor weights = scores();
    {
      const CountedTensor exponentials = exact_scores();  // of the sums
    }
    const CountedTensor taken = context_.is_half() ? plain_scores() : CountedTensor();
    multiply();
  }

  void backward() const {
    const CountedTensor factors = walk_drawn_factors(num_scores_, context_.exact_bytes, context_);
    const CountedTensor weights = scores();
    const CountedTensor left = exact_scores();
    {
      const CountedTensor taken = context_.is_half() ? plain_scores() : CountedTensor();
      multiply();
    }
    const CountedTensor of_left = product();
    const CountedTensor of_scores = context_.is_half() ? plain_scores() : CountedTensor();
    multiply();
  }

 private:
  CountedTensor exact_scores() const { return context_.make(num_scores_ * context_.exact_bytes); }
  CountedTensor plain_scores() const { return context_.make(num_scores_ * context_.element_bytes); }

  /// Rows of several blocks are put in order, head by head.
  CountedTensor in_order(int64_t rows) const {
    return call_.count > 1 ? context_.rows_of(rows, width_) : CountedTensor();
  }
  /// Scores from rows and rows, in exact numbers.
  CountedTensor product() const {
    const CountedTensor queries = in_order(call_.queries()), keys = in_order(call_.keys * call_.count);
    CountedTensor made = plain_scores();
    walk_product(call_.length, width_, call_.keys, context_);
    return context_.is_half() ? exact_scores() : made;
  }
  CountedTensor scores() const {
    CountedTensor made = product();
    if (!call_.hides_keys()) return made;
    const int64_t pairs = call_.length * call_.keys;
    const CountedTensor is_hidden = context_.make(pairs * kFlagBytes);
    const CountedTensor hidden = context_.make(pairs * context_.exact_bytes);
    return made;
  }
  /// Rows from scores and rows.
  void multiply() const {
    const CountedTensor rows = in_order(call_.keys * call_.count);
    const CountedTensor made = context_.rows_of(call_.queries(), width_);
    walk_product(call_.length, call_.keys, width_, context_);
  }

  KernelCall call_;
  int64_t width_;
  int64_t num_scores_ = 0;
  const WalkContext& context_;
};

/// Minus infinity where a row does not see another one. Kernels hide what comes later themselves.
CountedTensor hide_keys(const KernelCall& call, const WalkContext& context) {
  if (!call.has_window()) return {};
  const CountedTensor hidden = context.make(2 * call.length * call.keys * kFlagBytes);
  return context.rows_of(call.length, call.keys);
}

/// What a call makes in passing besides its results.
void run_call(const KernelCall& call, int64_t heads, const Attention& attention, const WalkContext& context) {
  if (attention.dropout > 0) return ComposedCall(call, heads, attention.head_dim, context).forward();
  const CountedTensor mask = hide_keys(call, context);
  const CountedTensor workspace = context.make(forward_workspace(call, attention.head_dim, context));
  pack_tiles(call, attention.head_dim, context);
}

void run_call_backward(const KernelCall& call, int64_t heads, const Attention& attention, const WalkContext& context) {
  if (attention.dropout > 0) return ComposedCall(call, heads, attention.head_dim, context).backward();
  const CountedTensor mask = hide_keys(call, context);
  const CountedTensor workspace = context.make(backward_workspace(call, attention.head_dim, heads, context));
  pack_tiles(call, attention.head_dim, context);
}

struct AttentionState {
  CountedTensor out;
  CountedTensor log_sums;
};

AttentionState attend(const LocalHeads& heads, const Attention& attention, const WalkContext& context) {
  const int64_t width = heads.queries * attention.head_dim;
  AttentionState state{.out = context.rows_of(context.whole_rows, width),
                       .log_sums = context.exact_rows_of(context.whole_rows, heads.queries)};
  for (const KernelCall& call : kernel_calls(*context.segments, heads.queries != heads.keys, attention)) {
    const CountedTensor out = context.rows_of(call.length * call.count, width);
    const CountedTensor log_sums = context.exact_rows_of(call.length * call.count, heads.queries);
    run_call(call, heads.queries, attention, context);
  }
  return state;
}

void attend_backward(const LocalHeads& heads, const Attention& attention, const WalkContext& context) {
  const int64_t width = heads.queries * attention.head_dim;
  for (const KernelCall& call : kernel_calls(*context.segments, heads.queries != heads.keys, attention)) {
    // Keys that several queries share have a gradient for each, which are summed.
    const CountedTensor gradients = context.rows_of(call.length * call.count, 3 * width);
    {
      CountedTensor in_order;
      if (heads.queries != heads.keys) in_order = context.rows_of(call.length, width);
      run_call_backward(call, heads.queries, attention, context);
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
    const AttentionMask mask = mask_of(attention);
    own_calls_ =
        calls_of(own_blocks(segment_parts(shared_.in_ring[static_cast<size_t>(shared_.group)], shared_.segments), mask,
                            /*batches=*/own_.queries == own_.keys));
    for (int64_t step = 1; step < std::ssize(shared_.in_ring); ++step) {
      const RingKeys keys = ring_keys(shared_.in_ring, shared_.segments, mask, shared_.group, step);
      ring_.push_back({.sent = total_size(keys.sent),
                       .received = total_size(keys.received),
                       .calls = calls_of(with_packed_keys(keys.blocks, keys.received))});
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
        run_call(call, own_.queries, attention_, context_);
        if (context_.is_half()) const CountedTensor exact = context_.exact_rows_of(call.queries(), width);
      }
    };
    // The keys of the next step are on their way while those of one are used.
    CountedTensor next = keys_of(0);
    attend_once(own_calls_);
    for (size_t step = 0; step < ring_.size(); ++step) {
      const CountedTensor now = std::exchange(next, {});
      next = keys_of(step + 1);
      attend_once(ring_[step].calls);
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
        run_call_backward(call, own_.queries, attention_, context_);
        if (context_.is_half())
          const CountedTensor exact = context_.exact_rows_of(std::max(call.queries(), call.keys * call.count), width);
      }
    };
    CountedTensor next = keys_of(0), returned;
    attend_once(own_calls_);
    for (size_t step = 0; step < ring_.size(); ++step) {
      const CountedTensor now = std::exchange(next, {});
      next = keys_of(step + 1);
      // Gradients for others' keys are made and sent, and those for own ones come back.
      const int64_t received = ring_[step].received;
      CountedTensor theirs = context_.exact_rows_of(received, 2 * own_.keys * dim());
      attend_once(ring_[step].calls);
      if (context_.is_half()) theirs = context_.rows_of(received, 2 * own_.keys * dim());
      const CountedTensor back = context_.rows_of(ring_[step].sent, 2 * own_.keys * dim());
      returned = context_.make(theirs.bytes() + back.bytes());
    }
    return context_.is_half() ? context_.rows_of(shared_.group_rows, (own_.queries + 2 * own_.keys) * dim()) : gradient;
  }

 private:
  int64_t dim() const { return attention_.head_dim; }
  /// Keys that go once round the ring: how many rows' are sent, and how many come.
  struct RingStep {
    int64_t sent = 0;
    int64_t received = 0;
    std::vector<KernelCall> calls;  ///< with those that came
  };

  /// Keys and values of a step of the ring.
  CountedTensor keys_of(size_t step) const {
    if (step >= ring_.size()) return {};
    return context_.rows_of(ring_[step].sent + ring_[step].received, 2 * own_.keys * dim());
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
  const RowsInRing& shared_;
  std::vector<KernelCall> own_calls_;
  std::vector<RingStep> ring_;
};

CountedTensor walk_shared_attention(const CountedTensor& qkv, const LocalHeads& heads, const Attention& attention,
                                    bool has_rotary, const WalkContext& context) {
  const int64_t turning = (heads.queries + heads.keys) * attention.head_dim;
  if (has_rotary) walk_rotation(context.whole_rows, turning, context);
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
    if (has_rotary) walk_rotation(context.whole_rows, turning, context);
    return dqkv;
  });
  return walk.return_queries(state.out);
}

}  // namespace

void walk_rotation(int64_t rows, int64_t width, const WalkContext& context) {
  if (context.has_own_kernels()) return;
  CountedTensor converted;
  if (context.is_half()) converted = context.exact_rows_of(rows, width);
  const CountedTensor turned = context.exact_rows_of(rows, width / 2);
}

CountedTensor walk_attention(const CountedTensor& qkv, const LocalHeads& heads, const Attention& attention,
                             bool has_rotary, const WalkContext& context) {
  if (context.shared) return walk_shared_attention(qkv, heads, attention, has_rotary, context);
  const int64_t rows = context.whole_rows;
  const int64_t turning = (heads.queries + heads.keys) * attention.head_dim;
  const int64_t packed = (heads.queries + 2 * heads.keys) * attention.head_dim;
  CountedTensor turned;  // where kernels do not take packed rows as they are, a GPU's attention reads copies
  if (has_rotary && !context.count->is_of_processor() && !context.has_own_kernels())
    turned = context.rows_of(rows, turning);
  if (has_rotary) walk_rotation(rows, turning, context);
  const AttentionState state = attend(heads, attention, context);
  AttentionState kept;
  if (!context.recomputes_attention) kept = state;
  if (context.recomputes_attention) turned.reset();
  context.add_step([=](const CountedTensor&) {
    const CountedTensor kept_qkv = qkv, kept_turned = turned;
    AttentionState used = kept;
    if (context.recomputes_attention) used = attend(heads, attention, context);
    if (context.has_own_kernels()) {
      const CountedTensor parts = context.rows_of(rows, packed);
      {
        const CountedTensor of_queries = context.exact_rows_of(rows, heads.queries * attention.head_dim);
        // Keys that several queries share have a gradient for each, which are summed.
        CountedTensor of_keys;
        if (heads.queries != heads.keys) of_keys = context.rows_of(rows, 2 * heads.queries * attention.head_dim);
      }
      return context.rows_of(rows, packed);
    }
    CountedTensor dqkv = context.rows_of(rows, packed);
    attend_backward(heads, attention, context);
    if (has_rotary) walk_rotation(rows, turning, context);
    return dqkv;
  });
  return state.out;
}

}  // namespace weft
