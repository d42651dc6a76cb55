#include "weft/simulate/rank_memory.h"

#include "weft/meaning/plan_schedule.h"
#include "weft/meaning/rank_groups.h"
#include "weft/simulate/plan_simulator.h"

namespace weft {

Result<std::vector<MemorySplit>> memory_of_ranks(const Plan& plan) {
  WEFT_TRY(PlanSimulator simulator, PlanSimulator::create(plan));
  WEFT_TRY(const Schedule schedule, playable_schedule(plan));
  const std::vector<MemorySplit> rows = memory_of_schedule_rows(plan, schedule, simulator.price(plan));
  std::vector<MemorySplit> ranks(static_cast<size_t>(plan.world_size));
  // Gives the ranks of a module, by their place along pp, the memory of the rows from a first one on.
  const auto fill = [&](size_t module, size_t first_row) {
    const Mesh mesh = legal_mesh_of(plan.modules[module]);
    for (const int64_t rank : mesh.ranks())
      ranks[static_cast<size_t>(rank)] = rows[first_row + static_cast<size_t>(place_in(mesh, rank).pp)];
  };
  fill(plan.modules.size() - 1, 0);
  // Encoders on ranks of their own have the rows behind the llm's, in the plan's order.
  auto next_row = static_cast<size_t>(plan.llm().pp);
  for (size_t module = 0; module < plan.modules.size(); ++module) {
    if (plan.modules[module].placement != ModulePlacement::kDisjoint) continue;
    fill(module, next_row);
    next_row += static_cast<size_t>(plan.modules[module].pp);
  }
  return ranks;
}

}  // namespace weft
