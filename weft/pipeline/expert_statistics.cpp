#include "weft/pipeline/expert_statistics.h"

#include <algorithm>

#include <ATen/ops/zeros.h>

#include "weft/tensor/local_tensor.h"

namespace weft {

ExpertLoad sum_expert_rows(const Routers& routers, const ExpertRows& rows, int64_t moved_bytes, Group& everyone) {
  const int64_t num_experts = routers.num_experts;
  const at::Tensor counts = at::zeros({routers.count() * num_experts + 1}, at::kLong);
  int64_t* values = counts.data_ptr<int64_t>();
  for (const auto& [stage, routers_here] : rows) {
    int64_t* next = values + routers.first_of_stage[static_cast<size_t>(stage)] * num_experts;
    for (const std::vector<int64_t>& chosen : routers_here) next = std::copy(chosen.begin(), chosen.end(), next);
  }
  int64_t& moved = values[routers.count() * num_experts];
  moved = moved_bytes;
  everyone.all_reduce(buffer_of(counts), Reduction::kSum).wait();
  ExpertLoad load{.rows = std::vector<int64_t>(static_cast<size_t>(num_experts)), .moved_bytes = moved};
  for (int64_t router = 0; router < routers.count(); ++router) {
    const int64_t* chosen = values + router * num_experts;
    int64_t all = 0, most = 0;
    for (int64_t expert = 0; expert < num_experts; ++expert) {
      load.rows[static_cast<size_t>(expert)] += chosen[expert];
      all += chosen[expert];
      most = std::max(most, chosen[expert]);
    }
    if (all > 0)
      load.imbalance = std::max(load.imbalance, static_cast<double>(most * num_experts) / static_cast<double>(all));
  }
  return load;
}

}  // namespace weft
