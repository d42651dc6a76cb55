#include "weft/search/frame_bounds.h"

#include <algorithm>

#include "weft/search/plan_bounds.h"
#include "weft/search/precision.h"

namespace weft {
namespace {

/// A step's work of every encoder that is not on ranks of its own, as a part of the pipeline.
std::array<double, kMostEncoders> inline_work_ms(Workbench& bench, const Candidate& degrees) {
  const EncoderSet all = (1u << bench.num_encoders()) - 1;
  bench.fill(with_inline(degrees, all));
  const Plan& plan = bench.plan();
  const ModuleCostsOf& costs = bench.pipeline_costs();
  std::array<double, kMostEncoders> work_ms{};
  size_t encoder = 0;
  for (size_t m = 0; m < plan.modules.size(); ++m) {
    const ModulePlan& module = plan.modules[m];
    if (!module.is_encoder()) continue;
    if (module.is_in_pipeline())
      work_ms[encoder] = static_cast<double>(plan.schedule.microbatches) * module_ms(plan, module, *costs[m]);
    ++encoder;
  }
  return work_ms;
}

}  // namespace

double FrameBounds::work_ms(const Candidate& degrees) {
  const DrawnLoads::Even even(bench_.loads());
  const std::array<double, kMostEncoders> inline_ms = inline_work_ms(bench_, degrees);
  bench_.fill(with_inline(degrees, 0));
  const Plan& plan = bench_.plan();
  double work_ms =
      static_cast<double>(plan.schedule.microbatches) * module_ms(plan, plan.llm(), *bench_.pipeline_costs().back());
  const double samples_a_row = static_cast<double>(plan.workload.global_batch_samples * degrees.pp) /
                               static_cast<double>(plan.llm().ranks.size());
  for (size_t e = 0; e < bench_.num_encoders(); ++e) {
    if (degrees.encoders[e].placement == ModulePlacement::kDisjoint) continue;
    work_ms += std::min(inline_ms[e], least_encoder_of(degrees, e) * samples_a_row);
  }
  return work_ms / static_cast<double>(degrees.pp);
}

double FrameBounds::least_encoder_of(const Candidate& degrees, size_t encoder) {
  // Where encoders may spread rows, among how many ranks matters.
  const bool has_room = std::any_of(bench_.space().encoders.begin(), bench_.space().encoders.end(),
                                    [](const auto& entry) { return entry.second.cp != EncoderSpace{}.cp; });
  const auto key =
      std::tuple(encoder, degrees.mbs, degrees.tp, degrees.pp > 1, has_room ? context_room(degrees) : degrees.tp);
  if (const auto found = least_.find(key); found != least_.end()) return found->second;
  Candidate c = degrees;
  c.encoders = {};
  const double ms = least_encoder_ms(c, encoder, bench_.space(), bench_.plan(), bench_.simulator());
  return least_.emplace(key, ms).first->second;
}

double FrameBounds::llm_ms(const Candidate& degrees) {
  const DrawnLoads::Even even(bench_.loads());
  Candidate c = with_inline(degrees, 0);
  const FrameChoices choices = choices_of(degrees, bench_.plan(), bench_.space());
  const std::vector<Placement> placements = choices.placements();
  double least_busy = kInfinity;
  for (const ZeroChoice& zero : choices.zeros) {
    zero.apply(c);
    bench_.fill(c);
    for (const Placement placement : placements) {
      const FluidChain fluid = fluid_chain(bench_.plan(), bench_.pipeline_costs(), placement);
      least_busy = std::min(least_busy, least_busy_ms(bench_.plan(), fluid));
    }
  }
  if (least_busy == kInfinity) return kInfinity;
  // The least of any ZeRO stage: without their communication.
  ZeroChoice{}.apply(c);
  double least_mixed = kInfinity;
  for (const ScheduleChoice& schedule : choices.schedules) {
    schedule.apply(c);
    bench_.fill(c);
    const Plan& plan = bench_.plan();
    const ModuleCostsOf& costs = bench_.pipeline_costs();
    const FreeWork llm = free_work(plan, plan.llm(), *costs.back());
    // Transfers behind inline encoders may be smaller than the llm's.
    StageTimes rest = every_stage(plan, costs);
    rest[kTransferWork] = 0;
    SolverShape& shape = bench_.shape_of(c).solver;
    least_mixed = std::min(least_mixed, least_makespan_ms(shape.schedule, shape.mix, std::span(&llm, 1), rest));
  }
  return std::max(least_mixed, least_busy * static_cast<double>(bench_.microbatches(degrees)));
}

}  // namespace weft
