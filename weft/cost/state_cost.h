#pragma once

#include "weft/cost/module_costs.h"
#include "weft/cost/zero_exposure.h"
#include "weft/spec/backward_needs.h"

namespace weft {

/// What a rank holds all the time, in bytes.
struct StateMemory {
  double weights = 0;
  double gradients = 0;
  double optimizer = 0;

  double total() const { return weights + gradients + optimizer; }
  StateMemory& operator+=(const StateMemory& other) {
    weights += other.weights;
    gradients += other.gradients;
    optimizer += other.optimizer;
    return *this;
  }
};

/// What keeping and changing a stage's weights costs a rank, besides its passes.
struct StateCost {
  StateMemory memory;
  double flight_bytes = 0;   ///< gradients on their way to other ranks, from one action to the next
  double passing_bytes = 0;  ///< gathered values and gradients that are being made, while an action runs
  double reduce_ms = 0;      ///< once a step: gradients over data-parallel ranks
  double update_ms = 0;      ///< once a step: the optimizer, and weights that come back from it
};

/// What the state's communication once a step can hide behind.
struct StateContext {
  double forward_ms = 0;  ///< of one microbatch in this stage
  double backward_ms = 0;
  double largest_block_elements = 0;   ///< ZeRO 3 holds two blocks whole
  double largest_weight_elements = 0;  ///< whose gradient is there whole before it is added up or scattered
};

/// Elements of a module's weights on one rank.
struct StateElements {
  LocalParameters all;
  LocalParameters trained;
  LocalParameters in_backward;  ///< of blocks through which gradients go
  int64_t num_weights = 1;      ///< buckets hold one or more of them
};

/// Of so many equal blocks whose backward makes these gradients.
StateElements elements_of(const BlockCost& block, const BackwardNeeds& backward, int64_t count = 1);

/// What ZeRO 2 and 3 communicate of one block in every microbatch: a gather or a scatter for each of its buckets.
ZeroTraffic zero_traffic(const Plan& plan, const ModulePlan& module, const ModuleCosts& costs,
                         const StateElements& block);

StateCost price_state(const Plan& plan, const ModulePlan& module, const ModuleCosts& costs,
                      const StateElements& elements, const StateContext& context);

/// Bytes of the gradients that a rank owns, of a weight that it has so many elements of.
double owned_gradient_bytes(const Plan& plan, const ModulePlan& module, int64_t elements);

/// Bytes of one trained element's optimizer states, and of what an update reads and writes.
double optimizer_bytes(const PrecisionPlan& precision);
double update_traffic_bytes(const PrecisionPlan& precision);

}  // namespace weft
