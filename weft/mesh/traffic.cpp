#include "weft/mesh/traffic.h"

#include "weft/mesh/split.h"

namespace weft {

Traffic gather_traffic(int64_t total, int64_t own, int64_t next) {
  return {.sent = total - next, .received = total - own};
}

Traffic scatter_traffic(int64_t total, int64_t own, int64_t previous) {
  return {.sent = total - own, .received = total - previous};
}

Traffic gather_traffic(int64_t total, int64_t num_ranks) {
  return gather_traffic(total, total / num_ranks, total / num_ranks);
}

Traffic scatter_traffic(int64_t total, int64_t num_ranks) {
  return scatter_traffic(total, total / num_ranks, total / num_ranks);
}

Traffic all_reduce_traffic(int64_t num_elements, int64_t num_ranks, int64_t rank) {
  if (num_ranks == 1) return {};
  const auto chunk = [&](int64_t i) {
    return balanced_part({0, num_elements}, num_ranks, (i + num_ranks) % num_ranks).size();
  };
  return {.sent = 2 * num_elements - chunk(rank) - chunk(rank + 1),
          .received = 2 * num_elements - chunk(rank - 1) - chunk(rank)};
}

}  // namespace weft
