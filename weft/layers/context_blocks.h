#pragma once

#include <cstdint>
#include <vector>

#include "weft/layers/attention_block.h"
#include "weft/layers/attention_core.h"
#include "weft/layers/segments.h"
#include "weft/mesh/box.h"

namespace weft {

// Who attends to whom where rows are shared out. Arithmetic only.

/// The rows of one segment that an owner of some rows has.
struct SegmentPart {
  Range segment;              ///< all rows of the segment
  std::vector<Range> pieces;  ///< those of the owner, ascending
  int64_t begin = 0;          ///< the first of them among the owner's rows, which it keeps in order
  int64_t num_rows = 0;

  Range here() const { return {begin, begin + num_rows}; }
};

/// `ranges` are an owner's rows; they ascend.
std::vector<SegmentPart> segment_parts(const std::vector<Range>& ranges, const PackedSegments& segments);

/// The blocks of an owner's queries with its own keys. With `batches`, those of one size are put together.
std::vector<AttentionBlock> own_blocks(const std::vector<SegmentPart>& own, AttentionMask mask, bool batches);

/// The blocks of one owner's queries with another's keys.
std::vector<AttentionBlock> blocks_between(const std::vector<SegmentPart>& queries,
                                           const std::vector<SegmentPart>& keys, AttentionMask mask);

/// The keys that blocks use; they ascend and do not touch.
std::vector<Range> used_keys(const std::vector<AttentionBlock>& blocks);

/// The same blocks where only those keys are there, one after the other.
std::vector<AttentionBlock> with_packed_keys(std::vector<AttentionBlock> blocks, const std::vector<Range>& keys);

}  // namespace weft
