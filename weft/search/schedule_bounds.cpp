#include "weft/search/schedule_bounds.h"

#include "weft/search/chunk_placer.h"
#include "weft/search/plan_bounds.h"

namespace weft {

ScheduleBounds::Pipeline ScheduleBounds::pipeline_of(const Workbench& bench, const Candidate& c) {
  return {.inside = bench.inline_encoders(c),
          .schedule = c.schedule,
          .vpp = c.vpp,
          .zero = c.zero,
          .keeps_gathered = c.zero_keep_gathered,
          .recomputes_logits = c.recompute_logits};
}

double ScheduleBounds::mixed_ms(Workbench& bench, const Candidate& c) {
  return mixed(bench, c).ms;
}

const MixBound& ScheduleBounds::mixed(Workbench& bench, const Candidate& c) {
  const Pipeline pipeline = pipeline_of(bench, c);
  if (const auto found = mixed_.find(pipeline); found != mixed_.end()) return found->second;
  bench.fill(c);
  const Plan& plan = bench.plan();
  const ModuleCostsOf& costs = bench.pipeline_costs();
  std::vector<FreeWork> works;
  for (size_t m = 0; m < costs.size(); ++m) {
    if (costs[m] != nullptr) works.push_back(free_work(plan, plan.modules[m], *costs[m]));
  }
  SolverShape& shape = bench.shape_of(c).solver();
  MixBound bound = best_mix(shape.schedule, shape.graph, shape.mix, works, every_stage(plan, costs));
  return mixed_.emplace(pipeline, std::move(bound)).first->second;
}

double ScheduleBounds::room_ms(Workbench& bench, const Candidate& c, const FluidChain& fluid, const BesideGib& beside,
                               bool hides_reductions) {
  const Pipeline pipeline = pipeline_of(bench, c);
  const std::tuple key(pipeline, hides_reductions, beside);
  if (const auto found = room_ms_.find(key); found != room_ms_.end()) return found->second;
  auto room = rooms_.find({pipeline, hides_reductions});
  if (room == rooms_.end()) {
    const PathMix& mix = mixed(bench, c).mix;
    bench.fill(c);
    const ModuleCostsOf& costs = bench.pipeline_costs();
    LayeredWork work = layered_work(bench.plan(), costs);
    if (hides_reductions) work.ignore_reductions();
    const SolverShape& shape = bench.shape_of(c).solver();
    RoomMix made(shape.schedule, mix, work, every_stage(bench.plan(), costs), fluid, shape.held_anyway);
    room = rooms_.emplace(std::pair(pipeline, hides_reductions), std::move(made)).first;
  }
  return room_ms_.emplace(key, room->second.least_makespan_ms(beside)).first->second;
}

const std::vector<std::vector<double>>& ScheduleBounds::chunk_loads_ms(Workbench& bench, const Candidate& c) {
  const auto [found, is_new] = chunk_loads_.try_emplace(pipeline_of(bench, c));
  if (!is_new) return found->second;
  SolverShape& shape = bench.shape_of(c).solver();
  PlanStages stages(bench.plan(), bench.pipeline_costs(), shape, prices_of(bench, c), nothing_beside(c.pp),
                    bench.space().recompute, /*has_memory_limit=*/false);
  const ChunkPlacer placer(stages, shape, {});
  for (int32_t fewer = 0; fewer <= ChunkPlacer::kMostFewer; ++fewer) {
    const std::vector<int32_t> counts = placer.counts(fewer);
    if (counts.empty()) continue;
    std::vector<double>& loads = found->second.emplace_back(static_cast<size_t>(c.pp), 0.0);
    int32_t first = 0;
    for (int32_t stage = 0; stage < stages.num_stages(); ++stage) {
      const int32_t count = counts[static_cast<size_t>(stage)];
      const StageTimes times = stages.plain_times(stage, first, count);
      loads[static_cast<size_t>(shape.schedule.rank_of_stage[static_cast<size_t>(stage)])] +=
          shape.schedule.num_microbatches * (times[kForwardWork] + times[kInputWork] + times[kWeightWork]);
      first += count;
    }
  }
  return found->second;
}

double ScheduleBounds::placed_ms(Workbench& bench, const Candidate& c, bool hides_reductions,
                                 const PlaceLimits& limits) {
  const std::pair key(pipeline_of(bench, c), hides_reductions);
  if (const auto found = placed_.find(key); found != placed_.end()) return found->second;
  SolverShape& shape = bench.shape_of(c).solver();
  // Where ranks hold several stages, what the rule recomputes with less memory may happen to be quicker.
  PlanStages stages(bench.plan(), bench.pipeline_costs(), shape, prices_of(bench, c), nothing_beside(c.pp),
                    bench.space().recompute, /*has_memory_limit=*/c.vpp == 1);
  stages.ignore_reductions(hides_reductions);
  PlaceLimits brief = limits;
  brief.is_brief = true;
  const double ms = stages.can_fit() ? place_pipeline(stages, shape, brief).bound_ms : kInfinity;
  return placed_.emplace(key, ms).first->second;
}

}  // namespace weft
