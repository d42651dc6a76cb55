#include "weft/search/fluid_bound.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "weft/search/precision.h"

namespace weft {
namespace {

/// Bounds leave this for rounding.
constexpr double kBoundHair = 1e-9;

class Ranks {
 public:
  Ranks(const FluidChain& chain, std::span<const double> in_flight) : c_(chain), in_flight_(in_flight) {}

  /// How many layers a rank can take without working longer than the bottleneck.
  double most_layers(int64_t rank, double bottleneck_ms) const {
    const bool is_last = rank + 1 == c_.pp;
    const double time_ms =
        bottleneck_ms * (1 + kBoundHair) - (rank == 0 ? c_.first_ms : 0) - (is_last ? c_.last_ms : 0);
    const double memory = c_.memory_bytes - (is_last ? c_.last_rank_bytes : 0);
    if (time_ms < 0 || memory < 0) return 0;
    const double held = held_by(rank);
    const double plain = c_.static_bytes + held * c_.activation_bytes;
    const double saved = held * c_.recompute_saves_bytes;
    const double by_time = std::floor(time_ms / c_.layer_ms * (1 + kBoundHair));
    if (by_time * plain <= memory * (1 + kBoundHair)) return std::min(by_time, c_.layers);
    if (saved <= 0) return std::min({by_time, c_.layers, std::floor(memory / plain * (1 + kBoundHair))});
    // n layers of which k are recomputed: n·plain − k·saved fits, and n·layer + k·forward is in time; k is taken as a
    // fraction, since the attention alone may be recomputed too.
    const double in_both = (time_ms + c_.forward_ms * memory / saved) / (c_.layer_ms + c_.forward_ms * plain / saved);
    const double by_memory = plain > saved ? memory / (plain - saved) : kInfinity;
    return std::min(c_.layers, std::floor(std::min({by_time, in_both, by_memory}) * (1 + kBoundHair)));
  }

  double held_by(int64_t rank) const {
    if (!in_flight_.empty()) return in_flight_[static_cast<size_t>(rank)];
    return c_.comes_back ? 1 : static_cast<double>(std::min(c_.pp - rank, c_.microbatches));
  }

  /// Whether everything finds room.
  bool is_enough(double bottleneck_ms) const {
    if (c_.even_ms() > bottleneck_ms * (1 + kBoundHair)) return false;
    if (std::max(c_.first_ms, c_.last_ms) > bottleneck_ms * (1 + kBoundHair)) return false;
    double layers = 0;
    for (int64_t rank = 0; rank < c_.pp && layers < c_.layers; ++rank) layers += most_layers(rank, bottleneck_ms);
    return layers >= c_.layers - 0.5;
  }

 private:
  const FluidChain& c_;
  std::span<const double> in_flight_;
};

}  // namespace

double least_bottleneck_ms(const FluidChain& c, std::span<const double> in_flight) {
  if (c.memory_bytes <= 0 || c.memory_bytes < c.last_rank_bytes) return kInfinity;
  const Ranks ranks(c, in_flight);
  double low = c.even_ms();
  if (ranks.is_enough(low)) return low;
  double high = 2 * (c.layers * (c.layer_ms + c.forward_ms) + c.other_ms + c.first_ms + c.last_ms);
  if (!ranks.is_enough(high)) return kInfinity;
  constexpr double kCloseEnough = 1e-4;
  while (high - low > kCloseEnough * high) {
    const double middle = (low + high) / 2;
    (ranks.is_enough(middle) ? high : low) = middle;
  }
  return low;
}

}  // namespace weft
