#pragma once

#include <map>
#include <vector>

#include "weft/meaning/batch_assignment.h"

namespace weft {

/// Whose samples are reassigned.
struct BalancedModules {
  bool llm = false;
  bool encoders = false;
  /// The llm's data-parallel ranks wait for one another in every microbatch, not only at the end of a step: they gather
  /// weights (ZeRO 3) or have experts for one another. Then microbatches of one index are alike before sums are.
  bool ranks_in_lockstep = false;
};

/// What each sample of a batch is predicted to take, by its place in the batch. Nothing is negative.
struct BatchCosts {
  std::vector<double> llm;                             ///< in the pipeline: the llm and inline encoders
  std::map<ModuleKind, std::vector<double>> encoders;  ///< of those beside the pipeline; 0 without media
};

/// How evenly a dealing spreads costs.
struct LlmSpread {
  double busiest_rank = 0;     ///< the largest sum of a data-parallel rank
  double longest_in_turn = 0;  ///< the sum over microbatches of the largest across ranks: what ranks take in lockstep
  double longest_microbatch = 0;  ///< holds up every stage of a pipeline
};
LlmSpread llm_spread(const BatchAssignment::Shares& shares, const std::vector<double>& costs);

/// The sum over macro batches of what the busiest rank takes.
double encoder_spread(const BatchAssignment::Shares& shares, const std::vector<double>& costs);

/// Samples reassigned so that costs are as equal as possible.
///
/// Every microbatch of the llm keeps its number of samples. Microbatches among themselves, sums of ranks, and
/// microbatches of one index across ranks are evened out; in none of the three is the result worse than the batch's own
/// order. Macro batch k of an encoder has the samples of its place in the llm's order, microbatch after microbatch,
/// however they are dealt to its ranks; no macro batch takes longer than dealt in that order. Deterministic.
BatchAssignment assign_balanced(const BatchShape& shape, const BalancedModules& which, const BatchCosts& costs);

}  // namespace weft
