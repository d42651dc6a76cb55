#pragma once

#include "weft/search/strategy_search.h"

namespace weft {

/// Layers of a plan's modules that take less time by a strategy, by the prices of plans.
struct FasterLayers {
  PlanStrategy strategy;
  std::vector<ModuleGain> gains;
  double gain = 0;  ///< of what the layers of all modules take in a step
};

/// Strategies of the layers of a family's modules, the llm and encoders, each with its own degree and the rows of its
/// own microbatch: the fastest of all modules together first, then slimmer ones, then those of a module by itself.
/// Those alone by which layers take less time than by the usual code, by more than a few tenths of a percent together.
/// `plan` has the usual model; a profile takes the place of formulas as MeasuredTimes says. `only` leaves the other
/// modules as they are.
Result<std::vector<FasterLayers>> faster_layers(const Plan& plan, const Profile* profile = nullptr,
                                                std::optional<ModuleKind> only = {});

/// Of a family's model, strategies of layers are tried on the plans that were found and on other degrees of tensor
/// parallelism that could be faster with one. The fastest plan never gets worse. A search that took most of its time
/// (`spent_s`) leaves none for it. Nothing where the usual strategy stays.
Result<std::optional<StrategyGain>> improve_layers(const PlanProblem& problem, const PlanSearchOptions& options,
                                                   PlanSearchResult& result, double spent_s);

}  // namespace weft
