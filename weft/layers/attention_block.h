#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>

#include "weft/layers/dropout.h"
#include "weft/mesh/attention_block.h"
#include "weft/mesh/head_counts.h"

namespace weft {

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
  kDevice,    ///< a GPU's, for half precision
};

/// For rows like these queries.
AttentionKernel kernel_for(const at::Tensor& q, const HeadCounts& heads);

/// Attends and adds what comes out to the state of the block's queries. Weights are dropped by composed kernels only.
void attend_block(const AttentionParts& parts, const AttentionBlock& block, const HeadCounts& heads,
                  const AttentionState& state, AttentionKernel kernel, const BlockDropout* dropout = nullptr);

/// Adds a block's share to the gradients of queries, keys and values, given the state after all blocks
/// of its queries.
void attend_block_backward(const at::Tensor& dout, const AttentionParts& parts, const AttentionBlock& block,
                           const HeadCounts& heads, const AttentionState& state, const AttentionParts& gradients,
                           AttentionKernel kernel, const BlockDropout* dropout = nullptr);

}  // namespace weft
