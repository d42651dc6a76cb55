#include "weft/cost/attended_rows.h"

#include <algorithm>

#include "weft/mesh/context_blocks.h"

namespace weft {
namespace {

/// Of every segment, the rows that ranges have of it.
std::vector<int64_t> parts_of(const std::vector<int64_t>& segments, const std::vector<Range>& ranges) {
  std::vector<int64_t> parts;
  int64_t begin = 0;
  for (const int64_t length : segments) {
    int64_t here = 0;
    for (const Range& range : ranges)
      here += std::max<int64_t>(0, std::min(range.end, begin + length) - std::max(range.begin, begin));
    parts.push_back(here);
    begin += length;
  }
  return parts;
}

}  // namespace

AttendedRows attended_rows(const std::vector<int64_t>& segments, const RowDeal& deal, int64_t ulysses, int64_t rank) {
  RowsInRing shared{
      .ulysses = ulysses, .place = rank % ulysses, .group = rank / ulysses, .segments = PackedSegments(segments)};
  UlyssesRows rows = ulysses_rows(deal, shared.segments, ulysses, rank);
  if (rows.is_local) {
    return {.lengths = std::make_shared<std::vector<int64_t>>(parts_of(segments, deal.ranges(rank))),
            .shared = nullptr};
  }
  size_t num_ranges = 0;
  for (const std::vector<Range>& own : rows.neighbours) {
    shared.group_rows += total_size(own);
    num_ranges += own.size();
  }
  shared.is_scattered = num_ranges > 1;
  shared.in_ring = std::move(rows.in_ring);
  return {.lengths = nullptr, .shared = std::make_shared<RowsInRing>(std::move(shared))};
}

}  // namespace weft
