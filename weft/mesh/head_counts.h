#pragma once

#include <cstdint>

namespace weft {

/// The heads that packed rows [rows, (heads + 2·kv_heads)·head_dim] hold: queries, then keys, then values.
struct HeadCounts {
  int64_t heads = 0;
  int64_t kv_heads = 0;
  int64_t head_dim = 0;

  int64_t packed_width() const { return (heads + 2 * kv_heads) * head_dim; }
  bool operator==(const HeadCounts&) const = default;
};

}  // namespace weft
