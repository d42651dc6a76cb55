#include "weft/search/fluid_bound.h"

#include <algorithm>
#include <limits>

namespace weft {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

/// One rank: so many layers at the plain price, then more at the price with recomputation.
struct RankRoom {
  double plain_layers = 0;
  double dear_layers = 0;  ///< beyond the plain ones
  double dear_ms = 0;      ///< of one of them
};

RankRoom room_of(const FluidChain& c, int64_t rank) {
  const auto in_flight = static_cast<double>(std::min(c.pp - rank, c.microbatches));
  const double plain = c.static_bytes + in_flight * c.activation_bytes;
  const double recomputed = plain - in_flight * c.recompute_saves_bytes;
  const double memory = std::max(0.0, c.memory_bytes - (rank + 1 == c.pp ? c.last_rank_bytes : 0));
  RankRoom room{.plain_layers = plain > 0 ? memory / plain : kInfinity};
  if (c.recompute_saves_bytes <= 0) return room;
  room.dear_layers = recomputed > 0 ? memory / recomputed - room.plain_layers : kInfinity;
  room.dear_ms = c.layer_ms + c.forward_ms * plain / (in_flight * c.recompute_saves_bytes);
  return room;
}

/// Whether all layers find room when no rank works longer than `bottleneck_ms`.
bool is_enough(const FluidChain& c, double bottleneck_ms) {
  double left = c.layers;
  double spent_ms = c.other_ms;
  for (int64_t rank = 0; rank < c.pp && left > 0; ++rank) {
    const double taken = std::min({left, room_of(c, rank).plain_layers, bottleneck_ms / c.layer_ms});
    left -= taken;
    spent_ms += taken * c.layer_ms;
  }
  // The more a rank has in flight, the more a recomputed layer saves there: earlier ranks are cheaper.
  for (int64_t rank = 0; rank < c.pp && left > 1e-12; ++rank) {
    const RankRoom room = room_of(c, rank);
    if (room.dear_ms <= 0) continue;
    const double time_left = bottleneck_ms - room.plain_layers * c.layer_ms;
    if (time_left <= 0) continue;
    const double taken = std::min({left, room.dear_layers, time_left / room.dear_ms});
    left -= taken;
    spent_ms += taken * room.dear_ms;
  }
  return left <= 1e-9 * c.layers && spent_ms <= static_cast<double>(c.pp) * bottleneck_ms * (1 + 1e-12);
}

}  // namespace

double least_bottleneck_ms(const FluidChain& c) {
  if (c.memory_bytes <= 0 || c.memory_bytes < c.last_rank_bytes) return kInfinity;
  double low = (c.layers * c.layer_ms + c.other_ms) / static_cast<double>(c.pp);
  if (is_enough(c, low)) return low;
  double high = 2 * (c.layers * (c.layer_ms + c.forward_ms) + c.other_ms);
  if (!is_enough(c, high)) return kInfinity;
  constexpr double kPrecision = 1e-3;
  while (high - low > kPrecision * high) {
    const double middle = (low + high) / 2;
    (is_enough(c, middle) ? high : low) = middle;
  }
  return low;
}

}  // namespace weft
