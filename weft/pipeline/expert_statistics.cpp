#include "weft/pipeline/expert_statistics.h"

#include <algorithm>

#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>

#include "weft/tensor/local_tensor.h"

namespace weft {

RoutedRows read_rows(const std::map<std::pair<int32_t, int32_t>, std::vector<at::Tensor>>& counted) {
  std::vector<at::Tensor> all;
  for (const auto& [place, routers] : counted) all.insert(all.end(), routers.begin(), routers.end());
  if (all.empty()) return {};
  const at::Tensor numbers = at::stack(all).cpu();
  const int64_t num_experts = numbers.size(1);
  const int64_t* next = numbers.const_data_ptr<int64_t>();
  RoutedRows rows;
  for (const auto& [place, routers] : counted) {
    for (size_t router = 0; router < routers.size(); ++router, next += num_experts)
      rows[place].emplace_back(next, next + num_experts);
  }
  return rows;
}

ExpertRows sum_microbatches(const RoutedRows& rows) {
  ExpertRows sums;
  for (const auto& [place, routers] : rows) {
    RouterRows& all = sums[place.first];
    all.resize(routers.size());
    for (size_t router = 0; router < routers.size(); ++router) {
      all[router].resize(routers[router].size());
      for (size_t expert = 0; expert < routers[router].size(); ++expert) all[router][expert] += routers[router][expert];
    }
  }
  return sums;
}

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
