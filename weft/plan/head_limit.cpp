#include "weft/plan/head_limit.h"

#include <algorithm>

#include "weft/mesh/head_share.h"

namespace weft {

int64_t HeadLimit::fewest(int64_t tp) const {
  if (tp > heads) return 0;
  int64_t least = heads;
  for (int64_t rank = 0; rank < tp; ++rank)
    least = std::min(least, share_of_heads({.heads = heads, .kv_heads = kv_heads, .head_dim = 1}, tp, rank).num_heads);
  return least;
}

int64_t HeadLimit::largest_divisor(int64_t tp, int64_t ulysses) const {
  for (int64_t size = std::min(ulysses, fewest(tp)); size > 1; --size) {
    if (ulysses % size == 0 && allows(tp, size)) return size;
  }
  return 1;
}

HeadLimit head_limit(const Module& module) {
  constexpr int64_t kAny = int64_t{1} << 40;
  HeadLimit least{kAny, kAny};
  for (const Block& kind : module.distinct_layers) {
    for (const Op& op : kind.ops) {
      const auto* attention = std::get_if<Attention>(&op.shape);
      if (attention != nullptr && attention->heads < least.heads) {
        least.heads = attention->heads;
        least.kv_heads = attention->kv_heads;
      }
    }
    const Op* norm = find_op(kind, "attention.q_norm");
    if (norm != nullptr && least.heads > 1) least.are_normed_together |= std::get<Norm>(norm->shape).groups == 1;
  }
  return least;
}

}  // namespace weft
