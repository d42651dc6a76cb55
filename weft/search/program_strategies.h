#pragma once

#include <vector>

#include "weft/search/strategy_search.h"

namespace weft {

/// Strategies of one program for one degree of tensor parallelism, besides the usual one: for every kind of block a few
/// of which none is better than another in both time and memory, found operator by operator (weft/shard), and joined.
/// `samples` run at once. A profile takes the place of formulas where it has an operator.
Result<std::vector<ModuleStrategy>> offered_strategies(const Model& model, const Cluster& cluster, Precision precision,
                                                       AttentionKernel attention, int64_t tp, int64_t samples,
                                                       const Profile* profile = nullptr);

/// Searches plans of a user's own program with every strategy that is offered for a degree of the space, those of the
/// plans that were found first, and takes over what is faster: the fastest plan never gets worse. A family's model is
/// improve_layers'. Nothing where the usual strategy stays, or the space allows no other.
Result<std::optional<StrategyGain>> improve_by_strategies(const PlanProblem& problem, const PlanSearchOptions& options,
                                                          PlanSearchResult& result, double spent_s = 0);

}  // namespace weft
