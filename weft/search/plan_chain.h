#pragma once

#include <vector>

#include "weft/cost/cost_model.h"
#include "weft/search/balance.h"

namespace weft {

/// The blocks of a plan's pipeline as a chain to be balanced, and how to get back.
struct PlanChain {
  BalanceCosts costs;
  std::vector<size_t> module_of_kind;  ///< by kind of the chain, in the plan
  double beside_gib = 0;               ///< of encoders beside the pipeline, on every rank
};

/// How to read what a chain cannot say exactly. Safe: what balances fits, as the simulator judges it. Hopeful: what
/// does not balance does not fit, and nothing is faster.
enum class ChainReading { kSafe, kHopeful };

PlanChain chain_of(const Plan& plan, const PlanCosts& costs, ChainReading reading);

/// Puts a balanced pipeline's layers and recomputation into the plan.
void apply_balance(const PlanChain& chain, const BalancedPipeline& balance, Plan& plan);

}  // namespace weft
