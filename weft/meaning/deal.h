#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace weft {

/// Items dealt to bins in rounds, one to each bin a round: item_of[round · bins + bin].
struct RoundDeal {
  int64_t bins = 0;
  std::vector<int32_t> item_of;
  std::vector<double> sums;  ///< by bin

  int64_t rounds() const { return static_cast<int64_t>(item_of.size()) / bins; }
};

/// Heaviest items in the first round, lightest in the last; in each the heaviest to the bin that has least. So items of
/// a round are alike and bins end up even. The number of items is a multiple of the bins.
RoundDeal deal_in_rounds(std::span<const double> values, int64_t bins);

/// Longest first to the bin that has least and has room: bins end up more even, rounds less alike.
RoundDeal deal_to_even_sums(std::span<const double> values, int64_t bins);

/// Exchanges items between the heaviest bin and others while that helps. Across rounds only where the bin gains more
/// than `growth_weight` times what the largest items of the two rounds grow by.
void even_out(std::span<const double> values, double growth_weight, RoundDeal& deal);

/// Puts every bin's items into falling order.
void sort_rounds(std::span<const double> values, RoundDeal& deal);

/// Items dealt to bins of any size: bin_of by item. Longest first to the bin that has least, then exchanges while they
/// help. Items without value go where fewest items are.
std::vector<int32_t> deal_longest_first(std::span<const double> values, int64_t bins);

}  // namespace weft
