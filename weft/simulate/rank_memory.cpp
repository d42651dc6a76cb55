#include "weft/simulate/rank_memory.h"

#include "weft/plan/module_mesh.h"
#include "weft/simulate/plan_simulator.h"

namespace weft {
namespace {

/// Gives the ranks of a module, by their place along pp, the memory of the rows from `first_row` on.
std::optional<Error> fill_stages(const ModulePlan& module, const std::vector<MemorySplit>& rows, size_t first_row,
                                 std::vector<MemorySplit>& ranks) {
  const Result<Mesh> mesh = mesh_of(module);
  if (!mesh) return mesh.error();
  for (const int64_t rank : mesh->ranks()) {
    const std::vector<int64_t> coordinates = mesh->coordinates_of(rank);
    size_t stage = 0;
    for (size_t axis = 0; axis < coordinates.size(); ++axis) {
      if (mesh->axes()[axis].name == "pp") stage = static_cast<size_t>(coordinates[axis]);
    }
    ranks[static_cast<size_t>(rank)] = rows[first_row + stage];
  }
  return std::nullopt;
}

}  // namespace

Result<std::vector<MemorySplit>> memory_of_ranks(const Plan& plan) {
  WEFT_TRY(PlanSimulator simulator, PlanSimulator::create(plan));
  WEFT_TRY(const Schedule schedule, playable_schedule(plan));
  const std::vector<MemorySplit> rows = memory_of_rows(plan, schedule, simulator.price(plan));
  std::vector<MemorySplit> ranks(static_cast<size_t>(plan.world_size));
  if (auto error = fill_stages(plan.llm(), rows, 0, ranks)) return *std::move(error);
  // Encoders on ranks of their own have the rows behind the llm's, in the plan's order.
  auto next_row = static_cast<size_t>(plan.llm().pp);
  for (const ModulePlan& module : plan.modules) {
    if (module.placement != ModulePlacement::kDisjoint) continue;
    if (auto error = fill_stages(module, rows, next_row, ranks)) return *std::move(error);
    next_row += static_cast<size_t>(module.pp);
  }
  return ranks;
}

}  // namespace weft
