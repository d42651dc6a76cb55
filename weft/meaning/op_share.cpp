#include "weft/meaning/op_share.h"

#include <algorithm>
#include <functional>
#include <numeric>

#include "weft/mesh/head_share.h"
#include "weft/mesh/split.h"
#include "weft/program/adapter_ops.h"

namespace weft {
namespace {

/// Of the rank that is asked for, or the most of any.
template <typename SizeOf>
int64_t most_of(const OpShare& share, SizeOf size_of) {
  if (share.tp_rank) return size_of(*share.tp_rank);
  int64_t most = 0;
  for (int64_t rank = 0; rank < share.tp; ++rank) most = std::max(most, size_of(rank));
  return most;
}

/// A search prices settings before it knows that they are not legal: with more ranks than heads everyone has one.
HeadShare heads_of(const HeadCounts& heads, int64_t num_ranks, int64_t rank) {
  const int64_t most = std::min(num_ranks, heads.heads);
  return share_of_heads(heads, most, std::min(rank, most - 1));
}

bool one_divides_other(int64_t a, int64_t b) {
  return a % b == 0 || b % a == 0;
}

/// The first rank never has less than another.
int64_t cut_anywhere(int64_t size, const OpShare& share) {
  return balanced_part({0, size}, share.tp, share.tp_rank.value_or(0)).size();
}

/// What a cut leaves of the side that it cuts.
int64_t cut(int64_t size, const Matmul& m, const OpShare& share) {
  if (m.head_dim == 0) return m.packed * m.unit * cut_anywhere(size / (m.packed * m.unit), share);
  const int64_t keys_and_values = size / m.head_dim - m.heads;
  const int64_t times_keys = keys_and_values / m.kv_heads;
  return most_of(share, [&](int64_t rank) {
    const HeadShare heads = heads_of({m.heads, m.kv_heads, m.head_dim}, share.tp, rank);
    return (heads.num_heads + times_keys * heads.num_kv_heads) * m.head_dim;
  });
}

/// Key and value heads, times their elements, of a rank that shares them with others; 0 where it has them alone.
int64_t shared_key_width(const Matmul& m, const OpShare& share) {
  if (m.head_dim == 0 || !share.tp_rank) return 0;
  const HeadShare heads = heads_of({m.heads, m.kv_heads, m.head_dim}, share.tp, *share.tp_rank);
  const int64_t times_keys = (m.out / m.head_dim - m.heads) / m.kv_heads;
  return heads.sharers > 1 ? times_keys * heads.num_kv_heads * m.head_dim : 0;
}

/// Tells `visit` of every weight of an operator, in the order in which a block has them.
template <typename Visit>
class EachWeight {
 public:
  EachWeight(const Op& op, const OpShare& share, Visit visit) : op_(op), share_(share), visit_(visit) {}

  void operator()(const Matmul& m) const {
    if (m.is_tied) return;
    if (op_.held) {
      visit_held({m.out, m.in}, op_.held->weight, /*is_product=*/true);
      // It lies along the output: keys without a bias of their own have zeros in it.
      if (m.bias_elements > 0) visit_held({m.out}, op_.held->bias, /*is_product=*/true);
      return;
    }
    const LocalMatmul local = local_matmul(m, op_.split(), share_);
    const bool is_expert = m.experts > 1;
    const bool is_whole = op_.split() == TensorSplit::kWhole && !has_whole_experts(op_, share_.experts_over_tp);
    const int64_t keys = op_.split() == TensorSplit::kColumn ? shared_key_width(m, share_) : 0;
    visit_(LocalWeight{.elements = local.experts * local.in * local.out,
                       .is_matrix = true,
                       .is_expert = is_expert,
                       .is_product = true,
                       .is_whole = is_whole,
                       .sees_divided = sees_divided_product(op_),
                       .same_keys = keys * local.in});
    if (m.bias_elements == 0) return;
    // Only a column split cuts the output that it lies along.
    const bool is_cut = op_.split() == TensorSplit::kColumn && !has_whole_experts(op_, share_.experts_over_tp);
    const int64_t bias = is_cut ? local.out : m.bias_elements;
    visit_(LocalWeight{
        .elements = local.experts * bias,
        .is_matrix = is_expert,
        .is_expert = is_expert,
        .is_product = true,
        .is_whole = is_whole || (op_.split() == TensorSplit::kRow && !has_whole_experts(op_, share_.experts_over_tp)),
        .same_keys = keys});
  }
  void operator()(const Lookup& l) const { visit_held({l.entries, l.width}, held_by(op_).weight); }
  void operator()(const Norm& n) const {
    visit_held({n.width}, held_by(op_).weight, /*is_product=*/false, sees_divided(op_));
    if (n.has_bias) visit_held({n.width}, held_by(op_).bias, /*is_product=*/false, sees_divided(op_));
  }
  void operator()(const Pointwise& p) const {
    if (p.scales > 0) visit_held({p.scales}, held_by(op_).weight);
  }
  void operator()(const auto&) const {}

 private:
  void visit_held(std::vector<int64_t> shape, const std::optional<HeldCut>& cut, bool is_product = false,
                  bool sees_part = false) const {
    if (cut) shape[cut->dim] = cut->unit * cut_anywhere(shape[cut->dim] / cut->unit, share_);
    visit_(LocalWeight{.elements = std::accumulate(shape.begin(), shape.end(), int64_t{1}, std::multiplies<>()),
                       .is_matrix = shape.size() > 1,
                       .is_product = is_product,
                       .is_whole = !cut,
                       .sees_divided = sees_part});
  }

  const Op& op_;
  const OpShare& share_;
  Visit visit_;
};

template <typename Visit>
void each_weight(const Op& op, const OpShare& share, Visit visit) {
  std::visit(EachWeight<Visit>(op, share, visit), op.shape);
}

}  // namespace

OpShare share_of(const ModulePlan& module, std::optional<int64_t> tp_rank) {
  return {.tp = module.tp, .ep = module.ep, .experts_over_tp = module.experts_over_tp, .tp_rank = tp_rank};
}

LocalMatmul local_matmul(const Matmul& m, TensorSplit split, const OpShare& share) {
  LocalMatmul local{.in = m.in, .out = m.out, .experts = m.experts > 1 ? (m.experts + share.ep - 1) / share.ep : 1};
  if (m.experts > 1 && share.experts_over_tp) return local;
  if (split == TensorSplit::kColumn || split == TensorSplit::kInside) local.out = cut(m.out, m, share);
  if (split == TensorSplit::kRow) local.in = cut(m.in, m, share);
  return local;
}

AttentionMask mask_of(const Attention& attention) {
  const bool is_sliding = attention.mask == Mask::kSliding;
  return {.is_causal = is_sliding || attention.mask == Mask::kCausal, .window = is_sliding ? attention.window : 0};
}

LocalHeads local_heads(const Attention& a, const OpShare& share) {
  const auto of = [&](int64_t rank) { return heads_of({a.heads, a.kv_heads, a.head_dim}, share.tp, rank); };
  return {.queries = most_of(share, [&](int64_t rank) { return of(rank).num_heads; }),
          .keys = most_of(share, [&](int64_t rank) { return of(rank).num_kv_heads; })};
}

LocalHeads heads_after_ulysses(const Attention& a, const OpShare& share, int64_t ulysses) {
  LocalHeads most;
  // Where heads divide evenly all ranks have as many: this is asked for every load that is priced.
  const bool is_even = a.heads % (share.tp * ulysses) == 0 && one_divides_other(a.kv_heads, share.tp) &&
                       one_divides_other(std::max<int64_t>(1, a.kv_heads / share.tp), ulysses);
  for (int64_t rank = 0; rank < (is_even ? 1 : share.tp); ++rank) {
    if (!is_even && share.tp_rank && *share.tp_rank != rank) continue;
    const HeadShare here = heads_of({a.heads, a.kv_heads, a.head_dim}, share.tp, rank);
    for (int64_t place = 0; place < (is_even ? 1 : ulysses); ++place) {
      const HeadShare own = heads_of({here.num_heads, here.num_kv_heads, a.head_dim}, ulysses, place);
      most.queries = std::max(most.queries, own.num_heads);
      most.keys = std::max(most.keys, own.num_kv_heads);
    }
  }
  return most;
}

LocalParameters local_parameters(const Op& op, const OpShare& share) {
  LocalParameters sum;
  each_weight(op, share,
              [&](const LocalWeight& weight) { (weight.is_expert ? sum.expert : sum.dense) += weight.elements; });
  return sum;
}

void list_weights(const Op& op, const OpShare& share, std::vector<LocalWeight>& weights) {
  each_weight(op, share, [&](const LocalWeight& weight) { weights.push_back(weight); });
}

}  // namespace weft
