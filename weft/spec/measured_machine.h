#pragma once

#include <array>
#include <cstddef>
#include <optional>

namespace weft {

enum class Collective { kAllReduce, kAllGather, kReduceScatter, kAllToAll, kSend };
inline constexpr size_t kNumCollectives = 5;

/// What a collective reaches over a link, in units of the link's own bandwidth and latency.
struct CollectiveRates {
  double bandwidth = 1;
  double latency = 1;

  bool operator==(const CollectiveRates&) const = default;
};
/// By Collective.
using RatesOfCollectives = std::array<CollectiveRates, kNumCollectives>;

/// Tensors are placed in blocks of whole pages, and freed ones leave gaps: the share of activations, workspace and
/// buffers that allocators lose.
inline constexpr double kAllocatorRounding = 0.04;

/// What a profile says of a machine and no cluster file does. It lives while plans are priced and is written nowhere.
struct MeasuredMachine {
  RatesOfCollectives within_node{};
  RatesOfCollectives between_nodes{};
  std::optional<double> action_ms;  ///< of the executor around every forward and backward, pipeline or not
  double step_ms = 0;               ///< of a step on every rank, besides its actions and updates
  double allocator_rounding = kAllocatorRounding;

  /// What bytes are multiplied by for it.
  double allocator_factor() const { return 1 + allocator_rounding; }
};

}  // namespace weft
