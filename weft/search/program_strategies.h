#pragma once

#include <cmath>
#include <string>
#include <vector>

#include "weft/search/plan_advice.h"

namespace weft {

/// Strategies of one program for one degree of tensor parallelism, besides the usual one: for every kind of block a few
/// of which none is better than another in both time and memory, found operator by operator (weft/shard), and joined.
/// `samples` run at once. A profile takes the place of formulas where it has an operator.
Result<std::vector<ModuleStrategy>> offered_strategies(const Model& model, const Cluster& cluster, Precision precision,
                                                       AttentionKernel attention, int64_t tp, int64_t samples,
                                                       const Profile* profile = nullptr);

/// What a strategy gained.
struct StrategyGain {
  ModuleStrategy strategy;
  double usual_ms = 0;  ///< the fastest plan without any
  double ms = 0;        ///< with it
  int64_t num_tried = 0;
};

/// For layers of a family's llm, a strategy by which they take less time in a plan than by the usual one, by the prices
/// of plans; nothing where none does by more than a few tenths of a percent, or layers cannot have one.
Result<std::optional<ModuleStrategy>> faster_layers(const Plan& plan);

/// Searches plans of a user's own program with every strategy that is offered for a degree of the space, those of the
/// plans that were found first, and takes over what is faster: the fastest plan never gets worse. Of a family's model
/// the plans that were found are tried with faster_layers, in a part of the time that the search took (`spent_s`).
/// Nothing where the usual strategy stays.
Result<std::optional<StrategyGain>> improve_by_strategies(const PlanProblem& problem, const PlanSearchOptions& options,
                                                          PlanSearchResult& result, double spent_s = INFINITY);

/// The same problem with a strategy: its model does what the strategy says, and its degree is the strategy's. Plans
/// that a search finds for it lack the words of the strategy (search_with has them).
Result<PlanProblem> problem_with(const ModuleStrategy& strategy, PlanProblem problem);

/// Searches plans with a strategy that is given.
Result<PlanSearchResult> search_with(const ModuleStrategy& strategy, const PlanProblem& problem,
                                     const PlanSearchOptions& options);

}  // namespace weft
