#include "weft/plan/head_limit.h"

#include <algorithm>

namespace weft {

int64_t HeadLimit::fewest(int64_t tp) const {
  const int64_t queries_of_key = heads / kv_heads;
  if (kv_heads >= tp) return kv_heads / tp * queries_of_key;
  return queries_of_key / ((tp + kv_heads - 1) / kv_heads);
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
  for (const Block& kind : module.layer_kinds) {
    for (const Op& op : kind.ops) {
      const auto* attention = std::get_if<Attention>(&op.shape);
      if (attention != nullptr && attention->heads < least.heads) least = {attention->heads, attention->kv_heads};
    }
  }
  return least;
}

}  // namespace weft
