#pragma once

#include <cstdint>
#include <optional>

#include <ATen/core/Tensor.h>

#include "weft/layers/dropout.h"
#include "weft/layers/rotary.h"
#include "weft/mesh/attention_block.h"
#include "weft/mesh/head_counts.h"
#include "weft/mesh/segments.h"

namespace weft {

/// What attention keeps from its forward for its backward besides queries, keys and values.
enum class AttentionKeeps : uint8_t {
  kResults,  ///< its output, and a log-sum per row and head
  kNothing,  ///< the backward runs it again
};

/// Attention of packed rows, [rows, heads·head_dim]: turned by the table if there is one, each row with the rows of its
/// segment. `qkv` is used up: it is turned in place, so it must be a fresh value that nothing else keeps.
at::Tensor attention_core(const at::Tensor& qkv, const HeadCounts& heads, const RotaryTable& rotary,
                          const PackedSegments& segments, AttentionMask mask,
                          AttentionKeeps keeps = AttentionKeeps::kResults,
                          const std::optional<AttentionDropout>& dropout = std::nullopt);

/// Attention of the last rows of one sequence, whose keys and values [rows, kv_heads, head_dim] are all given and
/// already turned. For generation: no gradients.
at::Tensor attention_with_past(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, AttentionMask mask);

}  // namespace weft
