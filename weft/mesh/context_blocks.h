#pragma once

#include <cstdint>
#include <vector>

#include "weft/mesh/attention_block.h"
#include "weft/mesh/box.h"
#include "weft/mesh/row_deal.h"
#include "weft/mesh/segments.h"

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

/// What one step of a ring brings: in step s a rank has the keys of the rank s before it.
struct RingKeys {
  int64_t to = 0;  ///< rank of the ring that this one sends its keys to
  int64_t from = 0;
  std::vector<Range> sent;             ///< rows of this rank
  std::vector<Range> received;         ///< rows of the other
  std::vector<AttentionBlock> blocks;  ///< with all keys of the other
};

/// `ranges` are the rows of the ring's ranks. Keys go as far as queries see them.
RingKeys ring_keys(const std::vector<std::vector<Range>>& ranges, const PackedSegments& segments, AttentionMask mask,
                   int64_t rank, int64_t step);

/// A deal of rows to groups of `ulysses` neighbours, which exchange rows for heads, seen from a rank of all.
struct UlyssesRows {
  std::vector<std::vector<Range>> neighbours;  ///< rows of the ranks of its group
  bool is_local = false;                       ///< no segment of theirs has rows elsewhere, nor is cut among them
  std::vector<std::vector<Range>> in_ring;     ///< rows of every group, in order; not listed where all is local
};
UlyssesRows ulysses_rows(const RowDeal& deal, const PackedSegments& segments, int64_t ulysses, int64_t rank);

}  // namespace weft
