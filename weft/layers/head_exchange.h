#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include <ATen/core/Tensor.h>

#include "weft/comm/group.h"
#include "weft/mesh/box.h"
#include "weft/mesh/head_share.h"

namespace weft {

/// Ranks that have all heads of their own rows exchange them, so that each has its share of the heads, of all rows, in
/// order; and back. Shares are those of share_of_heads: where there are fewer key heads than ranks, neighbours get a
/// copy of one. Without a group there is one rank, and nothing changes.
class HeadExchange {
 public:
  /// `ranges` are each rank's rows.
  HeadExchange(std::optional<Group> group, const HeadCounts& heads, const std::vector<std::vector<Range>>& ranges);

  /// Of this rank, between the two exchanges.
  const HeadCounts& heads() const { return shared_; }
  /// The first of its query heads among all.
  int64_t first_head() const { return first_head_; }

  /// Queries, keys and values of this rank's rows, [rows, heads + 2·kv_heads, head_dim], to those of its heads.
  at::Tensor share_packed(const at::Tensor& x);
  /// The same way, for what has queries' heads only.
  at::Tensor share_queries(const at::Tensor& x);
  /// The other way. What came of copies of a key head is summed.
  at::Tensor return_packed(const at::Tensor& x);
  at::Tensor return_queries(const at::Tensor& x);

 private:
  /// A rank's heads in a tensor of all.
  using HeadRanges = std::vector<Range>;
  /// Consecutive rows of one rank.
  struct Stretch {
    int64_t row = 0;       ///< among all, as they are between the exchanges
    int64_t received = 0;  ///< as they come, by rank
    int64_t size = 0;
  };

  static at::Tensor in_order(const at::Tensor& x, const std::vector<Stretch>& stretches, int64_t Stretch::*begin);
  at::Tensor share(const at::Tensor& x, const std::vector<HeadRanges>& heads);
  at::Tensor give_back(const at::Tensor& x, const std::vector<HeadRanges>& heads, int64_t num_heads);

  std::optional<Group> group_;
  HeadCounts all_;
  HeadCounts shared_;
  int64_t first_head_ = 0;
  bool copies_keys_ = false;
  int64_t num_rows_ = 0;             ///< of all ranks
  std::vector<int64_t> counts_;      ///< rows of each rank
  std::vector<Stretch> by_row_;      ///< of all ranks, by row
  std::vector<Stretch> by_rank_;     ///< as they come
  std::vector<HeadRanges> packed_;   ///< by rank
  std::vector<HeadRanges> queries_;  ///< by rank
};

}  // namespace weft
