#pragma once

#include <cstdint>
#include <random>
#include <vector>

#include "weft/spec/sample_load.h"

namespace weft {

/// Draws samples from a workload's distributions. The same seed gives the same samples on every machine.
class SampleDrawer {
 public:
  /// The workload must fit the model (average_sample). Both must outlive it.
  SampleDrawer(const Model& model, const Workload& workload, uint64_t seed)
      : model_(&model), workload_(&workload), generator_(seed) {}

  SampleLoad draw();

 private:
  double draw(const Distribution& distribution);

  const Model* model_;
  const Workload* workload_;
  std::mt19937_64 generator_;
};

/// Whether samples differ at all.
bool has_distributions(const Workload& workload);

/// Tokens of one sample in one module: how they spread.
struct TokenSpread {
  double mean = 0;
  double deviation = 0;
  double most = 0;
};
TokenSpread token_spread(const Model& model, const Workload& workload, const SampleLoad& average, ModuleKind kind);

/// Tokens that so many samples together hardly ever exceed: the largest that there can be, and the others four standard
/// deviations above their mean; no more than the workload allows.
double high_tokens(const TokenSpread& spread, double samples);

}  // namespace weft
