#include "weft/meaning/rank_row.h"

#include "weft/meaning/rank_groups.h"

namespace weft {

std::optional<int32_t> row_of_rank(const Plan& plan, const Schedule& schedule, int64_t rank) {
  const size_t llm = plan.modules.size() - 1;
  if (const auto groups = rank_groups(plan, llm, rank)) return static_cast<int32_t>(groups->place.pp);
  size_t encoder = 0;
  for (size_t module = 0; module < llm; ++module) {
    if (plan.modules[module].is_in_pipeline()) continue;
    const ScheduledEncoder& rows = schedule.encoders[encoder++];
    if (const auto groups = rank_groups(plan, module, rank))
      return rows.groups[static_cast<size_t>(groups->place.pp)].front();
  }
  return std::nullopt;
}

RowBackwards backwards_of_row(const std::vector<Action>& row, size_t num_stages) {
  RowBackwards backwards{.last_microbatch = std::vector<int32_t>(num_stages, -1)};
  for (const Action& action : row) {
    backwards.are_split |= action.kind == ActionKind::kBackwardWeight;
    if (action.kind == ActionKind::kBackward || action.kind == ActionKind::kBackwardWeight)
      backwards.last_microbatch[static_cast<size_t>(action.stage)] = action.microbatch;
  }
  return backwards;
}

}  // namespace weft
