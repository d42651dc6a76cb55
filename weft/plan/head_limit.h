#pragma once

#include <cstdint>

#include "weft/spec/model.h"

namespace weft {

/// Over how many ranks a module's attention heads can be shared out.
struct HeadLimit {
  int64_t heads = 0;
  int64_t kv_heads = 0;
  bool are_normed_together = false;  ///< all query heads of a row have one norm, for which a rank needs them all

  /// Ranks of tensor parallelism at most.
  int64_t most_tp() const { return are_normed_together ? 1 : heads; }
  /// The fewest query heads that one of so many tensor-parallel ranks has. Key heads are dealt out whole, each with
  /// the queries that use it; where there are fewer than ranks, ranks share one and divide its queries.
  int64_t fewest(int64_t tp) const;
  /// Whether every rank of Ulysses groups of that size has a query head.
  bool allows(int64_t tp, int64_t ulysses) const { return tp <= most_tp() && ulysses <= fewest(tp); }
  /// The largest divisor of `ulysses` that is allowed; 1 is always taken for one.
  int64_t largest_divisor(int64_t tp, int64_t ulysses) const;
};

/// Of the module's kind of layers with the fewest; without attention everything is allowed.
HeadLimit head_limit(const Module& module);

}  // namespace weft
