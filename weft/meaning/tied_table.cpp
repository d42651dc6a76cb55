#include "weft/meaning/tied_table.h"

#include <algorithm>

namespace weft {

int32_t llm_entry_stage(const Plan& plan, const std::vector<StagePart>& parts) {
  for (const StagePart& part : parts) {
    if (part.has_entry && !plan.modules[static_cast<size_t>(part.module)].is_encoder()) return part.stage;
  }
  return 0;
}

int32_t llm_entry_stage(const Plan& plan) {
  const bool has_inline = std::any_of(plan.modules.begin(), plan.modules.end(), [](const ModulePlan& module) {
    return module.is_encoder() && module.is_in_pipeline();
  });
  if (!has_inline) return 0;
  std::vector<StagePart> parts;
  list_stage_parts(plan, parts);
  return llm_entry_stage(plan, parts);
}

TiedTable tied_table(const Plan& plan, const std::vector<StagePart>& parts) {
  if (!plan.model.has_tied_embeddings) return {};
  const int32_t entry = llm_entry_stage(plan, parts), exit = num_stages(plan) - 1;
  return {.is_copied = entry != exit,
          .is_summed_over_ranks = place_of_stage(plan, entry).rank != place_of_stage(plan, exit).rank};
}

}  // namespace weft
