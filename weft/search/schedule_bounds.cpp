#include "weft/search/schedule_bounds.h"

#include "weft/search/plan_bounds.h"

namespace weft {

ScheduleBounds::Pipeline ScheduleBounds::pipeline_of(const Workbench& bench, const Candidate& c) {
  return {.inside = bench.inline_encoders(c),
          .schedule = c.schedule,
          .vpp = c.vpp,
          .zero = c.zero,
          .keeps_gathered = c.zero_keep_gathered};
}

double ScheduleBounds::mixed_ms(Workbench& bench, const Candidate& c) {
  const Pipeline pipeline = pipeline_of(bench, c);
  if (const auto found = mixed_.find(pipeline); found != mixed_.end()) return found->second;
  bench.fill(c);
  const Plan& plan = bench.plan();
  const ModuleCostsOf& costs = bench.pipeline_costs();
  std::vector<FreeWork> works;
  for (size_t m = 0; m < costs.size(); ++m) {
    if (costs[m] != nullptr) works.push_back(free_work(plan, plan.modules[m], *costs[m]));
  }
  SolverShape& shape = bench.shape_of(c).solver;
  const double ms = least_makespan_ms(shape.schedule, shape.graph, shape.mix, works, every_stage(plan, costs));
  return mixed_.emplace(pipeline, ms).first->second;
}

double ScheduleBounds::placed_ms(Workbench& bench, const Candidate& c, bool hides_reductions,
                                 const PlaceLimits& limits) {
  const std::pair key(pipeline_of(bench, c), hides_reductions);
  if (const auto found = placed_.find(key); found != placed_.end()) return found->second;
  SolverShape& shape = bench.shape_of(c).solver;
  PlanStages stages(bench.plan(), bench.pipeline_costs(), shape, prices_of(bench, c), nothing_beside(c.pp),
                    {.allows_full = false, .allows_selective = false}, /*has_memory_limit=*/false);
  stages.ignore_reductions(hides_reductions);
  const double ms = place_pipeline(stages, shape, limits).bound_ms;
  return placed_.emplace(key, ms).first->second;
}

}  // namespace weft
