#pragma once

#include "weft/search/enumerate.h"
#include "weft/search/fluid_bound.h"
#include "weft/search/path_mix.h"
#include "weft/search/room_mix.h"
#include "weft/simulate/plan_simulator.h"

namespace weft {

/// Forward and backward of one microbatch in all of a module's blocks, without recomputation.
double module_ms(const Plan& plan, const ModulePlan& module, const ModuleCosts& costs);

/// The same as work that may lie on any stage, by the plan's schedule, with what ZeRO's communication adds.
FreeWork free_work(const Plan& plan, const ModulePlan& module, const ModuleCosts& costs);

/// The pipeline's work by stages, with what ZeRO's communication, reductions and updates add.
LayeredWork layered_work(const Plan& plan, const ModuleCostsOf& costs);

/// What every stage of the plan's pipeline has besides its blocks, at least: the host's time, and a transfer on.
StageTimes every_stage(const Plan& plan, const ModuleCostsOf& costs);

/// The pipeline that a plan is filled with, as a relaxation of all its placements: layers in fractions, everything else
/// spread at will. `costs` are by module; `placement` is the schedule's, whatever the plan's is.
FluidChain fluid_chain(const Plan& plan, const ModuleCostsOf& costs, Placement placement);

/// What ranks have besides one chunk of the pipeline.
struct RankLoad {
  BesideGib beside = {};
  int64_t chunks = 1;                      ///< stages of a rank
  std::span<const double> in_flight = {};  ///< as for least_bottleneck_ms
};
/// What one microbatch keeps the busiest rank busy, at least; infinite where the layers fit in no way.
double least_busy_ms(const Plan& plan, const FluidChain& fluid, const RankLoad& load = {});

/// The least that an encoder can take of a device: milliseconds for one sample, forwards and backwards. Looks at every
/// tp and mbs_scale of the space for this micro-batch; `plan` is overwritten.
double least_encoder_ms(const Candidate& frame, size_t encoder, const PlanSpace& space, Plan& plan,
                        PlanSimulator& simulator);

}  // namespace weft
