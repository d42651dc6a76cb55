#pragma once

#include <functional>

#include "weft/comm/world.h"
#include "weft/measure/measure_block.h"

namespace weft {

/// Sizes of whole tensors.
std::vector<int64_t> link_sizes_bytes(at::Device device);

/// Collectives and messages among the ranks of a world, in groups of several sizes, inside a node and across nodes.
/// Every rank calls this; all know what was measured. `show` hears, on the first rank, what is under way.
std::vector<LinkMeasurement> measure_links(World& world, const MeasureSettings& settings,
                                           const std::function<void(const std::string&)>& show);

}  // namespace weft
