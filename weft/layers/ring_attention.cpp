#include "weft/layers/ring_attention.h"

#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include "weft/base/check.h"
#include "weft/mesh/context_blocks.h"
#include "weft/tensor/local_tensor.h"

namespace weft {
namespace {

/// Some rows of a tensor, one after the other.
at::Tensor packed_rows(const at::Tensor& x, const std::vector<Range>& ranges) {
  std::vector<at::Tensor> views;
  for (const Range& range : ranges) views.push_back(x.narrow(0, range.begin, range.size()));
  return views.size() == 1 ? views.front().contiguous() : at::cat(views);
}

/// Where [rows, 2·kv_heads, head_dim] are keys and values.
AttentionParts with_keys(const at::Tensor& q, const at::Tensor& kv) {
  const int64_t kv_heads = kv.size(1) / 2;
  return {q, kv.narrow(1, 0, kv_heads), kv.narrow(1, kv_heads, kv_heads)};
}

}  // namespace

at::Tensor rows_in(const at::Tensor& numbers, const std::vector<Range>& ranges) {
  return ranges.empty() ? numbers.narrow(0, 0, 0) : packed_rows(numbers, ranges);
}

RingAttention::RingAttention(std::optional<Group> group, const HeadCounts& heads,
                             const std::vector<std::vector<Range>>& ranges, const PackedSegments& segments,
                             AttentionMask mask, const std::optional<AttentionDropout>& dropout)
    : group_(std::move(group)), heads_(heads) {
  const int64_t num_ranks = group_ ? group_->size() : 1;
  const int64_t rank = group_ ? group_->rank() : 0;
  WEFT_CHECK(static_cast<int64_t>(ranges.size()) == num_ranks, "rows of {} ranks in a ring of {}", ranges.size(),
             num_ranks);
  own_ = own_blocks(segment_parts(ranges[static_cast<size_t>(rank)], segments), mask,
                    /*batches=*/heads.heads == heads.kv_heads);
  if (dropout) {
    const at::Tensor own = rows_in(dropout->rows, ranges[static_cast<size_t>(rank)]);
    dropout_ = BlockDropout{.probability = dropout->probability,
                            .key = dropout->key,
                            .queries = own,
                            .keys = own,
                            .first_head = dropout->first_head};
  }
  for (int64_t s = 1; s < num_ranks; ++s) {
    RingKeys keys = ring_keys(ranges, segments, mask, rank, s);
    std::optional<BlockDropout> with_theirs = dropout_;
    if (with_theirs) {
      const at::Tensor theirs = rows_in(dropout->rows, ranges[static_cast<size_t>(keys.from)]);
      with_theirs->keys = rows_in(theirs, keys.received);
    }
    steps_.push_back({.to = keys.to,
                      .from = keys.from,
                      .sent = std::move(keys.sent),
                      .num_received = total_size(keys.received),
                      .blocks = with_packed_keys(std::move(keys.blocks), keys.received),
                      .dropout = std::move(with_theirs)});
  }
}

RingAttention::Transfer RingAttention::start_keys(const Step& step, const at::Tensor& keys_and_values) {
  Transfer transfer;
  if (step.num_received > 0) {
    transfer.received = at::empty({step.num_received, 2 * heads_.kv_heads, heads_.head_dim}, keys_and_values.options());
    transfer.recv = group_->recv(buffer_of(transfer.received), step.from);
  }
  if (!step.sent.empty()) {
    transfer.sent = packed_rows(keys_and_values, step.sent);
    transfer.send = group_->send(buffer_of(transfer.sent), step.to);
  }
  return transfer;
}

RingAttention::Transfer RingAttention::start_gradients(const Step& step, at::Tensor theirs,
                                                       const at::TensorOptions& options) {
  Transfer transfer;
  if (!step.sent.empty()) {
    transfer.received = at::empty({total_size(step.sent), 2 * heads_.kv_heads, heads_.head_dim}, options);
    transfer.recv = group_->recv(buffer_of(transfer.received), step.to);
  }
  if (step.num_received > 0) {
    transfer.sent = std::move(theirs);
    transfer.send = group_->send(buffer_of(transfer.sent), step.from);
  }
  return transfer;
}

AttentionState RingAttention::forward(const at::Tensor& qkv) {
  const AttentionParts parts = attention_parts(qkv, heads_);
  const at::Tensor kv = qkv.narrow(1, heads_.heads, 2 * heads_.kv_heads);
  const AttentionKernel kernel = kernel_for_rows(qkv);
  AttentionState state = empty_state(parts.q);
  Transfer next;
  if (!steps_.empty()) next = start_keys(steps_.front(), kv);
  for (const AttentionBlock& block : own_) attend_block(parts, block, heads_, state, kernel, drops(dropout_));
  for (size_t i = 0; i < steps_.size(); ++i) {
    Transfer transfer = std::move(next);
    next = i + 1 < steps_.size() ? start_keys(steps_[i + 1], kv) : Transfer{};
    if (transfer.recv) {
      transfer.recv->wait();
      const AttentionParts with_theirs = with_keys(parts.q, transfer.received);
      for (const AttentionBlock& block : steps_[i].blocks)
        attend_block(with_theirs, block, heads_, state, kernel, drops(steps_[i].dropout));
    }
    if (transfer.send) transfer.send->wait();
  }
  return state;
}

at::Tensor RingAttention::backward(const at::Tensor& dout, const at::Tensor& qkv, const AttentionState& state) {
  const AttentionParts parts = attention_parts(qkv, heads_);
  const at::Tensor kv = qkv.narrow(1, heads_.heads, 2 * heads_.kv_heads);
  const AttentionKernel kernel = kernel_for_rows(qkv);
  const at::TensorOptions wide = qkv.options().dtype(accumulation_type(qkv.scalar_type()));
  const at::Tensor gradient = at::empty(qkv.sizes(), wide);
  const AttentionParts dparts = attention_parts(gradient, heads_);
  const at::Tensor dkv = gradient.narrow(1, heads_.heads, 2 * heads_.kv_heads);

  const auto add_gradients = [&](const Step& step, Transfer& transfer) {
    if (transfer.recv) {
      transfer.recv->wait();
      int64_t row = 0;
      for (const Range& range : step.sent) {
        dkv.narrow(0, range.begin, range.size()).add_(transfer.received.narrow(0, row, range.size()));
        row += range.size();
      }
    }
    if (transfer.send) transfer.send->wait();
  };

  Transfer next, returned;
  if (!steps_.empty()) next = start_keys(steps_.front(), kv);
  for (const AttentionBlock& block : own_)
    attend_block_backward(dout, parts, block, heads_, state, dparts, kernel, drops(dropout_));
  for (size_t i = 0; i < steps_.size(); ++i) {
    Transfer transfer = std::move(next);
    next = i + 1 < steps_.size() ? start_keys(steps_[i + 1], kv) : Transfer{};
    at::Tensor theirs;
    if (transfer.recv) {
      transfer.recv->wait();
      theirs = at::zeros(transfer.received.sizes(), wide);
      const AttentionParts with_theirs = with_keys(parts.q, transfer.received);
      const AttentionParts their_gradients = with_keys(dparts.q, theirs);
      for (const AttentionBlock& block : steps_[i].blocks)
        attend_block_backward(dout, with_theirs, block, heads_, state, their_gradients, kernel,
                              drops(steps_[i].dropout));
      theirs = theirs.to(qkv.scalar_type());
    }
    if (transfer.send) transfer.send->wait();
    if (i > 0) add_gradients(steps_[i - 1], returned);
    returned = start_gradients(steps_[i], theirs, qkv.options());
  }
  if (!steps_.empty()) add_gradients(steps_.back(), returned);
  return gradient.to(qkv.scalar_type());
}

}  // namespace weft
