#pragma once

#include <map>
#include <vector>

#include <ATen/core/Tensor.h>

#include "weft/comm/group.h"
#include "weft/meaning/routers.h"
#include "weft/schedule/step_metrics.h"

namespace weft {

/// By router of a stage: rows of this rank that chose each expert.
using RouterRows = std::vector<std::vector<int64_t>>;
/// By stage.
using ExpertRows = std::map<int32_t, RouterRows>;
/// By stage and microbatch.
using RoutedRows = std::map<std::pair<int32_t, int32_t>, RouterRows>;

/// Reads back what routers counted, int64 on one device, in one piece.
RoutedRows read_rows(const std::map<std::pair<int32_t, int32_t>, std::vector<at::Tensor>>& counted);
/// Those of all microbatches.
ExpertRows sum_microbatches(const RoutedRows& rows);

/// The load of a step's experts, from the rows and the moved bytes that every rank of the group counts. Ranks that
/// route the same rows count them once.
ExpertLoad sum_expert_rows(const Routers& routers, const ExpertRows& rows, int64_t moved_bytes, Group& everyone);

}  // namespace weft
