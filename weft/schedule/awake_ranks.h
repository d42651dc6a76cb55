#pragma once

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <span>
#include <vector>

namespace weft {

/// Which ranks to look at in a round, where rows run jointly in rounds: those for which something has happened since
/// the round before began. To look at all of them would take time by the square of their number where one rank waits
/// for the other.
class AwakeRanks {
 public:
  /// All of them in the first round.
  explicit AwakeRanks(size_t num_ranks) : is_woken_(num_ranks, true), woken_(num_ranks) {
    std::iota(woken_.begin(), woken_.end(), 0);
  }

  /// For the next round.
  void wake(int32_t rank) {
    if (is_woken_[static_cast<size_t>(rank)]) return;
    is_woken_[static_cast<size_t>(rank)] = true;
    woken_.push_back(rank);
  }

  /// In ascending order; valid until the next call. None: nothing will happen any more.
  std::span<const int32_t> next_round() {
    now_.clear();
    now_.swap(woken_);
    std::sort(now_.begin(), now_.end());
    for (const int32_t rank : now_) is_woken_[static_cast<size_t>(rank)] = false;
    return now_;
  }

 private:
  std::vector<bool> is_woken_;
  std::vector<int32_t> woken_, now_;
};

}  // namespace weft
