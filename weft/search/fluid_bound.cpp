#include "weft/search/fluid_bound.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "weft/base/units.h"
#include "weft/search/precision.h"

namespace weft {
namespace {

/// Bounds leave this for rounding.
constexpr double kBoundHair = 1e-9;

}  // namespace

void FluidChain::take(const BesideGib& beside) {
  memory_bytes -= beside.all * kGiB;
  last_rank_bytes += beside.last * kGiB;
  last_state_bytes += beside.last * kGiB;
  moment_bytes = beside.moment * kGiB;
  last_moment_bytes = beside.last_moment * kGiB;
}

double FluidChain::least_held_bytes() const {
  const double own_layers = std::ceil(layers / static_cast<double>(pp));
  const auto held = static_cast<double>(std::min(pp, microbatches));
  const double first =
      own_layers * (static_bytes + held * (activation_bytes - recompute_saves_bytes)) + first_rank_bytes;
  const double last = own_layers * (static_bytes + activation_bytes - recompute_saves_bytes) + last_rank_bytes;
  // A layer that is recomputed has its activations back while its backward runs.
  return std::max(first, last) + activation_bytes + workspace_bytes + stage_bytes + passing_bytes;
}

double FluidRanks::held_by(int64_t rank) const {
  if (!in_flight_.empty()) return in_flight_[static_cast<size_t>(rank)];
  return chain_.comes_back ? 1 : static_cast<double>(std::min(chain_.pp - rank, chain_.microbatches));
}

double FluidRanks::memory_of(int64_t rank) const {
  return chain_.memory_bytes - (rank == 0 ? chain_.first_rank_bytes : 0) -
         (rank + 1 == chain_.pp ? chain_.last_rank_bytes : 0);
}

double FluidRanks::state_memory_of(int64_t rank) const {
  const bool is_last = rank + 1 == chain_.pp;
  return chain_.memory_bytes + chain_.workspace_bytes - (rank == 0 ? chain_.first_state_bytes : 0) -
         (is_last ? chain_.last_state_bytes + chain_.last_moment_bytes : chain_.moment_bytes);
}

double FluidRanks::plain_bytes(int64_t rank) const {
  return chain_.static_bytes + held_by(rank) * chain_.activation_bytes;
}

double FluidRanks::plain_layers(int64_t rank) const {
  return std::max(0.0, memory_of(rank) / plain_bytes(rank) * (1 + kBoundHair));
}

double FluidRanks::recompute_ms(int64_t rank) const {
  const double saved = held_by(rank) * chain_.recompute_saves_bytes;
  return saved > 0 ? chain_.forward_ms * plain_bytes(rank) / saved : kInfinity;
}

double FluidRanks::most_layers(int64_t rank, double bottleneck_ms) const {
  const bool is_last = rank + 1 == chain_.pp;
  const double time_ms =
      bottleneck_ms * (1 + kBoundHair) - (rank == 0 ? chain_.first_ms : 0) - (is_last ? chain_.last_ms : 0);
  const double memory = memory_of(rank);
  if (time_ms < 0 || memory < 0) return 0;
  const double plain = plain_bytes(rank);
  const double saved = held_by(rank) * chain_.recompute_saves_bytes;
  const double state = state_memory_of(rank);
  if (state < 0) return 0;
  double by_time = std::floor(time_ms / chain_.layer_ms * (1 + kBoundHair));
  if (chain_.static_bytes > 0) by_time = std::min(by_time, std::floor(state / chain_.static_bytes * (1 + kBoundHair)));
  if (by_time * plain <= memory * (1 + kBoundHair)) return std::min(by_time, chain_.layers);
  if (saved <= 0) return std::min({by_time, chain_.layers, std::floor(memory / plain * (1 + kBoundHair))});
  // n layers of which k are recomputed: n·plain − k·saved fits, and n·layer + k·forward is in time; k is taken as a
  // fraction, since the attention alone may be recomputed too.
  const double in_both =
      (time_ms + chain_.forward_ms * memory / saved) / (chain_.layer_ms + chain_.forward_ms * plain / saved);
  const double by_memory = plain > saved ? memory / (plain - saved) : kInfinity;
  return std::min(chain_.layers, std::floor(std::min({by_time, in_both, by_memory}) * (1 + kBoundHair)));
}

bool FluidRanks::is_enough(double bottleneck_ms) const {
  if (chain_.even_ms() > bottleneck_ms * (1 + kBoundHair)) return false;
  if (std::max(chain_.first_ms, chain_.last_ms) > bottleneck_ms * (1 + kBoundHair)) return false;
  double layers = 0;
  for (int64_t rank = 0; rank < chain_.pp && layers < chain_.layers; ++rank) layers += most_layers(rank, bottleneck_ms);
  return layers >= chain_.layers - 0.5;
}

double least_bottleneck_ms(const FluidChain& c, std::span<const double> in_flight) {
  if (c.memory_bytes <= 0 || c.memory_bytes < c.last_rank_bytes) return kInfinity;
  const FluidRanks ranks(c, in_flight);
  double low = c.even_ms();
  if (ranks.is_enough(low)) return low;
  const double most = 2 * (c.layers * (c.layer_ms + c.forward_ms) + c.other_ms + c.first_ms + c.last_ms);
  // Most lie near the even share.
  constexpr double kNear = 1.25;
  double high = std::min(most, kNear * low);
  if (!ranks.is_enough(high)) {
    low = high;
    high = most;
    if (!ranks.is_enough(high)) return kInfinity;
  }
  constexpr double kCloseEnough = 1e-4;
  while (high - low > kCloseEnough * high) {
    const double middle = (low + high) / 2;
    (ranks.is_enough(middle) ? high : low) = middle;
  }
  return low;
}

}  // namespace weft
