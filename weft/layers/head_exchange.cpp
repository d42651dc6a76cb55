#include "weft/layers/head_exchange.h"

#include <algorithm>

#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>

#include "weft/base/check.h"
#include "weft/layers/attention_block.h"
#include "weft/tensor/local_tensor.h"

namespace weft {
HeadExchange::HeadExchange(std::optional<Group> group, const HeadCounts& heads,
                           const std::vector<std::vector<Range>>& ranges)
    : group_(std::move(group)), all_(heads), shared_(heads) {
  const int64_t num_ranks = group_ ? group_->size() : 1;
  WEFT_CHECK(static_cast<int64_t>(ranges.size()) == num_ranks, "rows of {} ranks in a group of {}", ranges.size(),
             num_ranks);
  int64_t received = 0;
  for (const auto& own : ranges) {
    counts_.push_back(total_size(own));
    for (const Range& range : own) {
      by_rank_.push_back({.row = range.begin, .received = received, .size = range.size()});
      received += range.size();
    }
  }
  by_row_ = by_rank_;
  std::sort(by_row_.begin(), by_row_.end(), [](const Stretch& a, const Stretch& b) { return a.row < b.row; });
  for (Stretch& stretch : by_row_) {
    stretch.row = num_rows_;
    num_rows_ += stretch.size;
  }
  by_rank_ = by_row_;
  std::sort(by_rank_.begin(), by_rank_.end(),
            [](const Stretch& a, const Stretch& b) { return a.received < b.received; });
  if (!group_) return;
  for (int64_t rank = 0; rank < num_ranks; ++rank) {
    const HeadShare share = share_of_heads(heads, num_ranks, rank);
    const Range q{share.first_head, share.first_head + share.num_heads};
    const Range k{heads.heads + share.first_kv_head, heads.heads + share.first_kv_head + share.num_kv_heads};
    packed_.push_back({q, k, {k.begin + heads.kv_heads, k.end + heads.kv_heads}});
    queries_.push_back({q});
    copies_keys_ = copies_keys_ || share.sharers > 1;
    if (rank == group_->rank()) {
      shared_ = {.heads = share.num_heads, .kv_heads = share.num_kv_heads, .head_dim = heads.head_dim};
      first_head_ = share.first_head;
    }
  }
}

at::Tensor HeadExchange::share_packed(const at::Tensor& x) {
  return group_ ? share(x, packed_) : x;
}
at::Tensor HeadExchange::share_queries(const at::Tensor& x) {
  return group_ ? share(x, queries_) : x;
}
at::Tensor HeadExchange::return_packed(const at::Tensor& x) {
  return group_ ? give_back(x, packed_, all_.heads + 2 * all_.kv_heads) : x;
}
at::Tensor HeadExchange::return_queries(const at::Tensor& x) {
  return group_ ? give_back(x, queries_, all_.heads) : x;
}

at::Tensor HeadExchange::share(const at::Tensor& x, const std::vector<HeadRanges>& heads) {
  const auto own = static_cast<size_t>(group_->rank());
  const int64_t rows = x.size(0), dim = all_.head_dim;
  const int64_t num_own = total_size(heads[own]);
  WEFT_CHECK(rows == counts_[own], "{} rows where the deal has {}", rows, counts_[own]);
  std::vector<int64_t> to, from;
  int64_t num_sent = 0;
  for (size_t rank = 0; rank < heads.size(); ++rank) {
    to.push_back(rows * total_size(heads[rank]) * dim);
    from.push_back(counts_[rank] * num_own * dim);
    num_sent += to.back();
  }
  const at::Tensor sent = at::empty({num_sent}, x.options());
  int64_t begin = 0;
  for (size_t rank = 0; rank < heads.size(); ++rank) {
    const at::Tensor part = sent.narrow(0, begin, to[rank]).view({rows, total_size(heads[rank]), dim});
    begin += to[rank];
    int64_t head = 0;
    for (const Range& range : heads[rank]) {
      part.narrow(1, head, range.size()).copy_(x.narrow(1, range.begin, range.size()));
      head += range.size();
    }
  }
  const at::Tensor received = at::empty({num_rows_, num_own, dim}, x.options());
  group_->all_to_all(buffer_of(sent), buffer_of(received), std::move(to), std::move(from)).wait();
  return in_order(received, by_row_, &Stretch::received);
}

at::Tensor HeadExchange::in_order(const at::Tensor& x, const std::vector<Stretch>& stretches, int64_t Stretch::*begin) {
  constexpr size_t kFew = 32;  // views of them are copied faster than an index is made and read
  if (stretches.size() <= 1) return x.contiguous();
  if (stretches.size() <= kFew) {
    std::vector<at::Tensor> views;
    for (const Stretch& stretch : stretches) views.push_back(x.narrow(0, stretch.*begin, stretch.size));
    return at::cat(views);
  }
  std::vector<int64_t> rows;
  rows.reserve(static_cast<size_t>(x.size(0)));
  for (const Stretch& stretch : stretches) {
    for (int64_t i = 0; i < stretch.size; ++i) rows.push_back(stretch.*begin + i);
  }
  return x.index_select(0, at::tensor(rows, at::kLong).to(x.device()));
}

at::Tensor HeadExchange::give_back(const at::Tensor& x, const std::vector<HeadRanges>& heads, int64_t num_heads) {
  const auto own = static_cast<size_t>(group_->rank());
  const int64_t rows = counts_[own], dim = all_.head_dim;
  const at::Tensor sent = in_order(x, by_rank_, &Stretch::row);
  std::vector<int64_t> to, from;
  int64_t num_received = 0;
  for (size_t rank = 0; rank < heads.size(); ++rank) {
    to.push_back(counts_[rank] * x.size(1) * dim);
    from.push_back(rows * total_size(heads[rank]) * dim);
    num_received += from.back();
  }
  const at::Tensor received = at::empty({num_received}, x.options());
  group_->all_to_all(buffer_of(sent), buffer_of(received), std::move(to), from).wait();

  const bool sums = copies_keys_ && heads.front().size() > 1;
  // Copies are summed before they are rounded.
  const at::Tensor whole =
      sums ? at::zeros({rows, num_heads, dim}, x.options().dtype(accumulation_type(x.scalar_type())))
           : at::empty({rows, num_heads, dim}, x.options());
  int64_t begin = 0;
  for (size_t rank = 0; rank < heads.size(); ++rank) {
    const at::Tensor part = received.narrow(0, begin, from[rank]).view({rows, total_size(heads[rank]), dim});
    begin += from[rank];
    int64_t head = 0;
    for (const Range& range : heads[rank]) {
      const at::Tensor to_heads = whole.narrow(1, range.begin, range.size());
      const at::Tensor from_heads = part.narrow(1, head, range.size());
      if (sums) {
        to_heads.add_(from_heads);
      } else {
        to_heads.copy_(from_heads);
      }
      head += range.size();
    }
  }
  return whole.to(x.scalar_type());
}

}  // namespace weft
