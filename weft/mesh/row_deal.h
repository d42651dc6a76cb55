#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "weft/mesh/box.h"

namespace weft {

/// How packed rows are dealt out to the ranks of context parallelism: each has ascending ranges that touch no other's,
/// and together they are all rows. A rank keeps its rows in their order.
class RowDeal {
 public:
  RowDeal() = default;
  /// By rank. Empty ranges are dropped, ranges that touch are joined.
  explicit RowDeal(std::vector<std::vector<Range>> ranges);

  /// For causal attention: every segment is cut into two parts a rank, of which rank r has part r and, from the other
  /// end, part r again, so that all have the same number of pairs to attend to. Where lengths do not divide, what is
  /// left over goes round, so that the ranks' rows differ by one at most.
  static RowDeal zigzag(std::span<const int64_t> lengths, int64_t num_ranks);

  /// Where every row attends to its whole segment: one range a rank, as even as it goes with cuts at `allowed` places
  /// only, and at a `preferred` one if that costs no rank more than an eighth of its share. Both ascend; all preferred
  /// ones are allowed.
  static RowDeal contiguous(int64_t num_rows, int64_t num_ranks, std::span<const int64_t> allowed,
                            std::span<const int64_t> preferred);

  int64_t num_ranks() const { return static_cast<int64_t>(ranges_.size()); }
  int64_t num_rows() const { return num_rows_; }
  const std::vector<Range>& ranges(int64_t rank) const { return ranges_[static_cast<size_t>(rank)]; }
  int64_t num_rows(int64_t rank) const { return counts_[static_cast<size_t>(rank)]; }
  /// In order.
  std::vector<int64_t> rows(int64_t rank) const;

  bool operator==(const RowDeal&) const = default;

 private:
  std::vector<std::vector<Range>> ranges_;
  std::vector<int64_t> counts_;
  int64_t num_rows_ = 0;
};

}  // namespace weft
