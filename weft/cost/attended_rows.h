#pragma once

#include <memory>
#include <vector>

#include "weft/cost/walk_context.h"
#include "weft/mesh/row_deal.h"

namespace weft {

/// Rows that attend to each other, as one rank of context parallelism has them: all on this rank, or some of them on
/// others.
struct AttendedRows {
  std::shared_ptr<const std::vector<int64_t>> lengths;
  std::shared_ptr<const RowsInRing> shared;
};

/// Of rows of these segments, dealt out to groups of `ulysses` ranks that exchange heads.
AttendedRows attended_rows(const std::vector<int64_t>& segments, const RowDeal& deal, int64_t ulysses, int64_t rank);

}  // namespace weft
