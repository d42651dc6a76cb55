#include "weft/tensor/rank_threads.h"

#include <algorithm>

#include <ATen/Parallel.h>

#include "weft/base/check.h"

namespace weft {

int threads_per_rank(int num_cores, int ranks_of_host) {
  WEFT_CHECK(ranks_of_host > 0, "{} ranks of a host", ranks_of_host);
  return std::max(1, num_cores / ranks_of_host);
}

void use_rank_threads(int num_threads) {
  WEFT_CHECK(num_threads > 0, "a rank of {} threads", num_threads);
  at::set_num_threads(num_threads);
}

}  // namespace weft
