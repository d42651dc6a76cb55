#pragma once

#include <vector>

#include "weft/search/plan_advice.h"

namespace weft {

/// What operators of one module's blocks do on its tensor-parallel axis.
struct StrategyOf {
  ModuleKind module = ModuleKind::kLlm;
  bool is_inline = false;  ///< an encoder of the llm's pipeline, which has the llm's degree
  ModuleStrategy strategy;

  bool operator==(const StrategyOf&) const = default;
};

/// Strategies of a plan's modules, of each that has one.
using PlanStrategy = std::vector<StrategyOf>;

PlanStrategy strategy_of(const Plan& plan);
/// Writes the words into the plan. Its model is what it was.
void put_words(const PlanStrategy& strategy, Plan& plan);
/// The model with blocks that do what the strategy says.
Result<Model> model_with(const PlanStrategy& strategy, Model model);

/// What a strategy does for the layers of one module, in a microbatch of its own, forward and back.
struct ModuleGain {
  ModuleKind module = ModuleKind::kLlm;
  double usual_ms = 0;
  double ms = 0;
};

/// What a strategy gained.
struct StrategyGain {
  PlanStrategy strategy;
  double usual_ms = 0;  ///< the fastest plan without any
  double ms = 0;        ///< with it
  int64_t num_tried = 0;
  std::vector<ModuleGain> modules = {};  ///< of layers of families
  /// Of layers of families: the search without strategies, of which alone something was proven.
  std::optional<PlanSearchResult> usual = std::nullopt;
};

/// The same problem with a strategy: its model does what the strategy says, and modules have the strategy's degrees.
/// Plans that a search finds for it lack the words of the strategy (search_with has them).
Result<PlanProblem> problem_with(const PlanStrategy& strategy, PlanProblem problem);

/// Searches plans with a strategy that is given.
Result<PlanSearchResult> search_with(const PlanStrategy& strategy, const PlanProblem& problem,
                                     const PlanSearchOptions& options);

/// Whether the best plan of a search is faster than the result's by such a share.
bool is_faster(const PlanSearchResult& found, double least_gain, const PlanSearchResult& result);

/// What is faster by less is not worth another strategy.
inline constexpr double kLeastStrategyGain = 1e-4;

}  // namespace weft
