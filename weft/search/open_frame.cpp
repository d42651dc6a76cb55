#include "weft/search/open_frame.h"

#include "weft/meaning/macro_batch.h"
#include "weft/meaning/weight_copies.h"
#include "weft/search/plan_bounds.h"
#include "weft/search/precision.h"

namespace weft {
namespace {

using WorksOfEncoders = std::array<std::vector<EncoderWork>, kMostEncoders>;

/// An encoder's work beside the pipeline.
EncoderWork work_beside(Workbench& bench, const Candidate& degrees, size_t encoder, const EncoderChoice& choice) {
  Candidate c = with_inline(degrees, 0);
  c.zero = effective_zero(1, num_weight_copies(degrees));
  c.encoders[encoder] = choice;
  bench.fill(c);
  const Plan& plan = bench.plan();
  PlanCosts::Encoder priced;
  size_t seen = 0;
  for (size_t m = 0; m < plan.modules.size(); ++m) {
    const ModulePlan& module = plan.modules[m];
    if (!module.is_encoder() || seen++ != encoder) continue;
    const auto samples = static_cast<double>(samples_at_once(plan, module));
    priced.module = static_cast<int32_t>(m);
    price_encoder(plan, priced.module, bench.simulator().costs().module_costs(plan, module, samples), priced.stages);
  }
  return work_of(plan, priced, bench.last_macro());
}

/// By encoder and choice; nothing where the choice is inline.
WorksOfEncoders works_beside(Workbench& bench, const OpenFrame& frame) {
  WorksOfEncoders works;
  for (size_t e = 0; e < bench.num_encoders(); ++e) {
    for (const EncoderChoice& choice : frame.choices.encoders[e])
      works[e].push_back(choice.is_inline() ? EncoderWork{} : work_beside(bench, frame.degrees, e, choice));
  }
  return works;
}

FluidPipeline fluid_pipeline(Workbench& bench, const OpenFrame& frame, EncoderSet inside) {
  FluidPipeline fluid{.by_zero = {}, .least_busy_ms = kInfinity, .least_even_ms = kInfinity};
  Candidate c = with_inline(frame.degrees, inside);
  for (const ZeroChoice& zero : frame.choices.zeros) {
    zero.apply(c);
    bench.fill(c);
    auto& chains = fluid.by_zero.emplace_back();
    for (const Placement placement : frame.placements) {
      const FluidChain& chain = chains.emplace_back(fluid_chain(bench.plan(), bench.pipeline_costs(), placement));
      fluid.least_busy_ms = std::min(fluid.least_busy_ms, least_busy_ms(bench.plan(), chain));
      fluid.least_even_ms = std::min(fluid.least_even_ms, chain.even_ms());
    }
  }
  return fluid;
}

}  // namespace

const FluidChain& OpenFrame::fluid_of(const Candidate& c, const std::vector<FluidChain>& by_placement) const {
  const auto found = std::find(placements.begin(), placements.end(), kind_of(c.schedule).placement);
  return by_placement[static_cast<size_t>(found - placements.begin())];
}

Candidate OpenFrame::candidate_of(const Combination& combination) const {
  Candidate c = degrees;
  c.encoders = choices.encoders_at(combination.choices);
  return c;
}

OpenFrame open_frame(Workbench& bench, const Candidate& degrees) {
  OpenFrame frame;
  frame.degrees = degrees;
  frame.choices = choices_of(degrees, bench.plan(), bench.space());
  frame.placements = frame.choices.placements();
  const WorksOfEncoders works = works_beside(bench, frame);
  const ClusterDevice& device = bench.plan().cluster.device;
  const double room_gib = device.memory_gib - device.reserved_memory_gib;
  const auto microbatches = static_cast<double>(bench.microbatches(degrees));
  for (const EncoderIndices& indices : encoder_combinations(frame.choices)) {
    Combination combination{.choices = indices};
    EncoderSet inside = 0;
    for (size_t e = 0; e < bench.num_encoders(); ++e) {
      const EncoderChoice& choice = frame.choices.encoders[e][indices[e]];
      if (choice.is_inline()) {
        inside |= 1u << e;
      } else {
        const EncoderWork& work = works[e][indices[e]];
        combination.add(choice, work, degrees.pp);
        if (choice.placement == ModulePlacement::kDisjoint && work.least_gib() > room_gib)
          combination.own_ms = kInfinity;  // its own ranks are too small for it
      }
    }
    FluidPipeline& fluid = frame.fluids[inside];
    if (fluid.by_zero.empty()) fluid = fluid_pipeline(bench, frame, inside);
    combination.least_ms =
        combination.beside.least() > room_gib
            ? kInfinity
            : combination.bound_ms(0, microbatches * fluid.least_busy_ms, microbatches * fluid.least_even_ms);
    frame.combinations.push_back(combination);
  }
  std::stable_sort(frame.combinations.begin(), frame.combinations.end(),
                   [](const Combination& a, const Combination& b) { return a.least_ms < b.least_ms; });
  return frame;
}

}  // namespace weft
