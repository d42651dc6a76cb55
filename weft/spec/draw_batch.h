#pragma once

#include <cstdint>
#include <random>
#include <span>
#include <vector>

#include "weft/spec/sample_load.h"

namespace weft {

/// Draws samples from a workload's distributions. The same seed gives the same samples on every machine.
class SampleDrawer {
 public:
  /// The workload must fit the model (average_sample). Both must outlive it.
  SampleDrawer(const Model& model, const Workload& workload, uint64_t seed)
      : model_(&model),
        workload_(&workload),
        generator_(seed),
        tokens_(workload.tokens),
        images_(workload.images),
        audio_(workload.audio) {}

  SampleLoad draw();

 private:
  /// A distribution's values, with the probability of each and all before it.
  class Values {
   public:
    explicit Values(const Distribution& distribution);
    double at(double uniform) const;

   private:
    std::span<const Distribution::Outcome> outcomes_;
    std::vector<double> sums_;
  };
  struct MediaValues {
    explicit MediaValues(const Media& media) : pieces_per_sample(media.pieces_per_sample), size(media.size) {}

    Values pieces_per_sample, size;
  };
  double draw(const Values& values);

  const Model* model_;
  const Workload* workload_;
  std::mt19937_64 generator_;
  Values tokens_;
  MediaValues images_, audio_;
};

/// Images or their tiles, clips and sequences that so many batches are expected to hold.
double expected_pieces(const Model& model, const Workload& workload, int64_t batches);

/// What a command draws at most: each piece is kept and priced by itself, and so many take some hundred megabytes and
/// some seconds. Steps of more are near to the mean batch.
inline constexpr double kMostDrawnPieces = 1 << 24;

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
