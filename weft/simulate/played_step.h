#pragma once

#include <map>

#include "weft/simulate/plan_simulator.h"

namespace weft {

/// What an action's predicted time is made of.
struct ActionTime {
  std::map<ModuleKind, double> compute_ms;  ///< of each module's blocks
  double communication_ms = 0;              ///< that holds it up, ZeRO's with it
  double host_ms = 0;                       ///< around it, and copies from and to the host
};

/// A step with given samples as every rank of a plan is predicted to run it.
struct PlayedStep {
  double step_time_ms = 0;  ///< as PlanSimulator::run_drawn says
  double makespan_ms = 0;   ///< of the actions
  double outside_ms = 0;    ///< what a rank's step has besides its actions
  Timeline timeline;        ///< by rank of the plan's world; idle ranks have nothing
  /// By rank: what each event of the timeline is made of. Only of F, B, I, W, EF and EB.
  std::vector<std::vector<ActionTime>> times;
};

/// Plays every replica with its own samples. `work` is the plan's, `samples` a whole batch of it. Prices have what a
/// profile measured of a step besides its actions (`outside_ms`) in the updates; here it is taken out of them.
PlayedStep play_step(PlanSimulator& simulator, const Plan& plan, const Schedule& schedule, const SampleWork& work,
                     const std::vector<SampleLoad>& samples, double outside_ms = 0);

}  // namespace weft
