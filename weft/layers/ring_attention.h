#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include <ATen/core/Tensor.h>

#include "weft/comm/group.h"
#include "weft/layers/attention_block.h"
#include "weft/layers/attention_core.h"
#include "weft/mesh/box.h"
#include "weft/mesh/segments.h"

namespace weft {

/// The numbers of some rows, given those of all.
at::Tensor rows_in(const at::Tensor& numbers, const std::vector<Range>& ranges);

/// Attention of rows that a ring of ranks shares out, all with the same heads. In step s a rank has the keys and values
/// of the rank s before it, which sends them itself, one step ahead of their use: as far as this rank's queries see
/// them, and nothing if they see none.
class RingAttention {
 public:
  /// `ranges` are each rank's rows; without a group there is one rank.
  RingAttention(std::optional<Group> group, const HeadCounts& heads, const std::vector<std::vector<Range>>& ranges,
                const PackedSegments& segments, AttentionMask mask,
                const std::optional<AttentionDropout>& dropout = std::nullopt);

  /// Of turned queries, keys and values [rows, heads + 2·kv_heads, head_dim], in the precision of empty_state.
  AttentionState forward(const at::Tensor& qkv);
  /// The gradient of `qkv`. Keys and values travel again, and after each step their gradients go to their owner.
  at::Tensor backward(const at::Tensor& dout, const at::Tensor& qkv, const AttentionState& state);

 private:
  struct Step {
    int64_t to = 0;  ///< rank of the ring that this one sends its keys to
    int64_t from = 0;
    std::vector<Range> sent;  ///< rows of this rank
    int64_t num_received = 0;
    std::vector<AttentionBlock> blocks;  ///< with the keys received
    std::optional<BlockDropout> dropout = std::nullopt;
  };
  /// A message each way. One without rows is not sent.
  struct Transfer {
    at::Tensor sent;
    at::Tensor received;
    std::optional<Work> send;
    std::optional<Work> recv;
  };

  Transfer start_keys(const Step& step, const at::Tensor& keys_and_values);
  /// `theirs` are those of the keys received.
  Transfer start_gradients(const Step& step, at::Tensor theirs, const at::TensorOptions& options);

  std::optional<Group> group_;
  HeadCounts heads_;
  AttentionKernel kernel_for_rows(const at::Tensor& rows) const {
    return dropout_ ? AttentionKernel::kComposed : kernel_for(rows, heads_);
  }
  static const BlockDropout* drops(const std::optional<BlockDropout>& dropout) { return dropout ? &*dropout : nullptr; }

  std::vector<AttentionBlock> own_;
  std::optional<BlockDropout> dropout_;  ///< of own blocks
  std::vector<Step> steps_;
};

}  // namespace weft
