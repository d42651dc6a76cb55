#pragma once

#include <cstdint>
#include <optional>

#include <ATen/core/Tensor.h>

#include "weft/comm/group.h"
#include "weft/layers/attention_core.h"
#include "weft/mesh/row_deal.h"

namespace weft {

/// The ranks that share out packed rows, seen from one of them. Rank i of them is number i % u of Ulysses group i / u.
struct ContextGroups {
  int64_t rank = 0;
  int64_t num_ranks = 1;
  std::optional<Group> ulysses;  ///< neighbours, which exchange rows for heads; nothing where there is one
  std::optional<Group> ring;     ///< this rank's place in every Ulysses group, in order; nothing where there is one
};

/// How the rows of a batch are shared out.
struct ContextRows {
  const ContextGroups* groups = nullptr;
  RowDeal deal;
};

/// attention_core where rows are shared out: `qkv` and `rotary` have this rank's rows, `segments` are those of all
/// rows. All ranks call it and its backward alike, also those without rows. Nothing travels in a Ulysses group none of
/// whose segments is cut, nor between groups that have none in common.
at::Tensor context_attention(const at::Tensor& qkv, const HeadCounts& heads, const RotaryTable& rotary,
                             const PackedSegments& segments, AttentionMask mask, AttentionKeeps keeps,
                             const ContextRows& rows, const std::optional<AttentionDropout>& dropout = std::nullopt);

}  // namespace weft
