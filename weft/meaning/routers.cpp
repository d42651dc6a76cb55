#include "weft/meaning/routers.h"

#include <numeric>

#include "weft/meaning/stage_parts.h"
#include "weft/spec/num_experts.h"

namespace weft {

Routers routers_of(const Plan& plan) {
  const Module& llm = *plan.model.find(ModuleKind::kLlm);
  std::vector<StagePart> parts;
  list_stage_parts(plan, parts);
  std::vector<int64_t> counts(static_cast<size_t>(num_stages(plan)) + 1);
  for (const StagePart& part : parts) {
    if (plan.modules[static_cast<size_t>(part.module)].is_encoder()) continue;
    for (int64_t layer = part.first_layer; layer < part.first_layer + part.num_layers; ++layer) {
      const bool routes = has_router(llm.distinct_layers[llm.layers[static_cast<size_t>(layer)]]);
      counts[static_cast<size_t>(part.stage) + 1] += routes ? 1 : 0;
    }
  }
  std::partial_sum(counts.begin(), counts.end(), counts.begin());
  return {.num_experts = num_experts(llm), .first_of_stage = std::move(counts)};
}

}  // namespace weft
