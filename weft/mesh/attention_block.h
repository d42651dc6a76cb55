#pragma once

#include <cstdint>

#include "weft/mesh/box.h"

namespace weft {

/// Who sees whom inside a segment.
struct AttentionMask {
  bool is_causal = false;
  int64_t window = 0;  ///< rows back, itself included; 0: all. Only with is_causal.
};

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

}  // namespace weft
