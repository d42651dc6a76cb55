#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>

#include "weft/mesh/box.h"
#include "weft/mesh/head_counts.h"

namespace weft {

/// A part of attention that one kernel call does: rows of queries with rows of keys.
struct AttentionBlock {
  enum class Sees : uint8_t {
    kAll,
    kCausal,  ///< query i keys up to i
    kWindow,  ///< query i keys up to i + offset, so many back as the window has
  };

  Range queries;
  Range keys;
  int64_t count = 1;  ///< blocks of this size, one after the other, each of the same rows of queries and keys
  Sees sees = Sees::kAll;
  int64_t offset = 0;
  int64_t window = 0;
  /// Every query is with its own key. A row has one such block, before all others, and what it gives is written, not
  /// added.
  bool has_own_keys = false;

  bool operator==(const AttentionBlock&) const = default;
};

/// Minus infinity where a query does not see a key, [queries, keys]; nothing where all see all.
c10::optional<at::Tensor> hidden_keys(const AttentionBlock& block, const at::TensorOptions& options);

/// Queries, keys and values of packed rows, [rows, heads, head_dim] each.
struct AttentionParts {
  at::Tensor q;
  at::Tensor k;
  at::Tensor v;
};

/// Of packed rows, [rows, heads + 2·kv_heads, head_dim] or that as two dims.
AttentionParts attention_parts(const at::Tensor& qkv, const HeadCounts& heads);

/// What attention has come to so far: the rows' outputs [rows, heads, head_dim], and the logarithms of the sums that
/// they were divided by, [rows, heads].
struct AttentionState {
  at::Tensor out;
  at::Tensor log_sums;
};

/// At least single precision.
at::ScalarType accumulation_type(at::ScalarType type);

/// For rows like these queries, in the precision in which blocks are put together.
AttentionState empty_state(const at::Tensor& q);

enum class AttentionKernel : uint8_t {
  kFlash,     ///< the CPU's
  kComposed,  ///< of operators that every device has; holds a block's weights whole
};

AttentionKernel kernel_for(at::Device device);

/// Attends and adds what comes out to the state of the block's queries.
void attend_block(const AttentionParts& parts, const AttentionBlock& block, const HeadCounts& heads,
                  const AttentionState& state, AttentionKernel kernel);

/// Adds a block's share to the gradients of queries, keys and values, given the state after all blocks
/// of its queries.
void attend_block_backward(const at::Tensor& dout, const AttentionParts& parts, const AttentionBlock& block,
                           const HeadCounts& heads, const AttentionState& state, const AttentionParts& gradients,
                           AttentionKernel kernel);

}  // namespace weft
