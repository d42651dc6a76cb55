#include "weft/mesh/context_deal.h"

#include <algorithm>

namespace weft {
namespace {

/// Where segments begin and end.
std::vector<int64_t> borders_of(const PackedSegments& segments) {
  std::vector<int64_t> borders{0};
  for (const int64_t length : segments.lengths()) borders.push_back(borders.back() + length);
  return borders;
}

}  // namespace

RowDeal deal_patches(int64_t num_patches, int64_t unit, const PackedSegments& segments, int64_t num_ranks) {
  std::vector<int64_t> allowed;
  for (int64_t patch = 0; patch <= num_patches; patch += unit) allowed.push_back(patch);
  return RowDeal::contiguous(num_patches, num_ranks, allowed, borders_of(segments));
}

RowLists merged_rows(const RowDeal& patches, int64_t unit, std::span<const int64_t> outputs) {
  RowLists made(static_cast<size_t>(patches.num_ranks()));
  for (int64_t rank = 0; rank < patches.num_ranks(); ++rank) {
    for (const Range& range : patches.ranges(rank)) {
      for (int64_t row = range.begin / unit; row < range.end / unit; ++row)
        made[static_cast<size_t>(rank)].push_back(outputs.empty() ? row : outputs[static_cast<size_t>(row)]);
    }
  }
  return made;
}

RowDeal deal_units(int64_t num_rows, int64_t unit, std::span<const int64_t> first_rows, const PackedSegments& segments,
                   int64_t num_ranks) {
  std::vector<bool> is_allowed(static_cast<size_t>(num_rows + 1), true);
  for (const int64_t first : first_rows) {
    for (int64_t row = first + 1; row < first + unit; ++row) is_allowed[static_cast<size_t>(row)] = false;
  }
  std::vector<int64_t> allowed;
  for (int64_t row = 0; row <= num_rows; ++row) {
    if (is_allowed[static_cast<size_t>(row)]) allowed.push_back(row);
  }
  // The rows of a unit may be of two segments: a pair's, where these are odd.
  std::vector<int64_t> preferred = borders_of(segments);
  std::erase_if(preferred, [&](int64_t row) { return !is_allowed[static_cast<size_t>(row)]; });
  return RowDeal::contiguous(num_rows, num_ranks, allowed, preferred);
}

RowOwners::RowOwners(const RowDeal& deal)
    : num_ranks(deal.num_ranks()),
      rank(static_cast<size_t>(deal.num_rows())),
      place(static_cast<size_t>(deal.num_rows())) {
  for (int64_t r = 0; r < deal.num_ranks(); ++r) {
    int64_t next = 0;
    for (const Range& range : deal.ranges(r)) {
      for (int64_t row = range.begin; row < range.end; ++row) {
        rank[static_cast<size_t>(row)] = r;
        place[static_cast<size_t>(row)] = next++;
      }
    }
  }
}

RowLists entries_by_rank(const RowOwners& owners, std::span<const int64_t> rows) {
  RowLists entries(static_cast<size_t>(owners.num_ranks));
  for (size_t entry = 0; entry < rows.size(); ++entry)
    entries[static_cast<size_t>(owners.rank[static_cast<size_t>(rows[entry])])].push_back(static_cast<int64_t>(entry));
  return entries;
}

std::vector<int64_t> places_on_rank(const RowOwners& owners, std::span<const int64_t> rows, int64_t rank) {
  std::vector<int64_t> places;
  for (const int64_t row : rows) {
    if (owners.rank[static_cast<size_t>(row)] == rank) places.push_back(owners.place[static_cast<size_t>(row)]);
  }
  return places;
}

std::vector<int64_t> outputs_of(std::span<const int64_t> order) {
  std::vector<int64_t> outputs(order.size());
  for (size_t output = 0; output < order.size(); ++output)
    outputs[static_cast<size_t>(order[output])] = static_cast<int64_t>(output);
  return outputs;
}

}  // namespace weft
