#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "weft/mesh/own_route.h"
#include "weft/mesh/row_deal.h"
#include "weft/mesh/segments.h"

namespace weft {

// How the rows of encoders are dealt out to the ranks of context parallelism, and who then makes and needs which of the
// rows that encoders give.

/// Patches, `unit` of which are merged into one row and stay together. Cuts are best between segments that attend to
/// each other.
RowDeal deal_patches(int64_t num_patches, int64_t unit, const PackedSegments& segments, int64_t num_ranks);
/// The rows that come of each rank's patches. Row i of the encoder's own order leaves it as output `outputs[i]`;
/// without a list, in that order.
RowLists merged_rows(const RowDeal& patches, int64_t unit, std::span<const int64_t> outputs);

/// Rows of which units of `unit`, given by their first ones, are pooled or merged and stay together. Others may be of
/// no unit.
RowDeal deal_units(int64_t num_rows, int64_t unit, std::span<const int64_t> first_rows, const PackedSegments& segments,
                   int64_t num_ranks);
/// Pairs of rows.
inline RowDeal deal_pairs(int64_t num_rows, std::span<const int64_t> first_rows, const PackedSegments& segments,
                          int64_t num_ranks) {
  return deal_units(num_rows, 2, first_rows, segments, num_ranks);
}

/// Who has each row of a deal, and as which of its own.
struct RowOwners {
  int64_t num_ranks = 0;
  std::vector<int64_t> rank;   ///< by row
  std::vector<int64_t> place;  ///< by row

  explicit RowOwners(const RowDeal& deal);
};

/// Of a list of rows, the entries that each rank has: numbers of the list.
RowLists entries_by_rank(const RowOwners& owners, std::span<const int64_t> rows);
/// The places among its own rows of the entries that one rank has.
std::vector<int64_t> places_on_rank(const RowOwners& owners, std::span<const int64_t> rows, int64_t rank);

/// The encoder's rows by what they leave it as, where output i is its row `order[i]`.
std::vector<int64_t> outputs_of(std::span<const int64_t> order);

}  // namespace weft
