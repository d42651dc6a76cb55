#include "weft/mesh/context_blocks.h"

#include <algorithm>

#include "weft/base/check.h"

namespace weft {
namespace {

using Sees = AttentionBlock::Sees;

/// Query piece by query piece, since how much of a window is left depends on how far apart pieces are.
class WindowBlocks {
 public:
  WindowBlocks(int64_t window, std::vector<AttentionBlock>& blocks) : window_(window), blocks_(blocks) {}

  /// `q` and `k` are where the pieces lie among their owners' rows.
  void add_own(Range piece, int64_t q, int64_t k) {
    const bool sees_all_before = piece.size() <= window_;
    blocks_.push_back({.queries = {q, q + piece.size()},
                       .keys = {k, k + piece.size()},
                       .sees = sees_all_before ? Sees::kCausal : Sees::kWindow,
                       .window = sees_all_before ? 0 : window_,
                       .has_own_keys = true});
  }
  void add_earlier(Range query, int64_t q, Range key, int64_t k) {
    // Rows that see the last key, and keys that the first row sees: no row of the block is without a key.
    const int64_t end = std::min(query.end, key.end - 1 + window_);
    const int64_t first = std::max(key.begin, query.begin - window_ + 1);
    if (end <= query.begin) return;
    const bool hides = end - window_ > first;
    blocks_.push_back({.queries = {q, q + end - query.begin},
                       .keys = {k + first - key.begin, k + key.size()},
                       .sees = hides ? Sees::kWindow : Sees::kAll,
                       .offset = hides ? query.begin - first : 0,
                       .window = hides ? window_ : 0});
  }

 private:
  int64_t window_;
  std::vector<AttentionBlock>& blocks_;
};

bool is_windowed(const SegmentPart& part, AttentionMask mask) {
  return mask.window > 0 && part.segment.size() > mask.window;
}

void add_window_blocks(const SegmentPart& queries, const SegmentPart& keys, bool are_own, AttentionMask mask,
                       std::vector<AttentionBlock>& blocks) {
  WindowBlocks windows(mask.window, blocks);
  int64_t q = queries.begin;
  for (const Range& query : queries.pieces) {
    if (are_own) windows.add_own(query, q, q);
    int64_t k = keys.begin;
    for (const Range& key : keys.pieces) {
      if (key.end <= query.begin) windows.add_earlier(query, q, key, k);
      k += key.size();
    }
    q += query.size();
  }
}

/// Pieces of queries that the same keys come before go together: of a zigzag's two, that leaves one block.
void add_causal_blocks(const SegmentPart& queries, const SegmentPart& keys, std::vector<AttentionBlock>& blocks) {
  int64_t q = queries.begin;
  int64_t num_before = 0;
  size_t next_key = 0;
  bool continues = false;  // the last block ends where this piece begins
  for (const Range& query : queries.pieces) {
    const int64_t num_last = num_before;
    while (next_key < keys.pieces.size() && keys.pieces[next_key].end <= query.begin)
      num_before += keys.pieces[next_key++].size();
    const Range here{q, q + query.size()};
    q = here.end;
    if (num_before == 0) continue;
    if (continues && num_before == num_last) {
      blocks.back().queries.end = here.end;
    } else {
      blocks.push_back({.queries = here, .keys = {keys.begin, keys.begin + num_before}});
    }
    continues = true;
  }
}

/// Whether the second is one more of the first, right after it.
bool is_next_of(const AttentionBlock& first, const AttentionBlock& second) {
  return first.sees != Sees::kWindow && first.sees == second.sees && first.has_own_keys && second.has_own_keys &&
         first.queries.size() == second.queries.size() && first.queries == first.keys &&
         second.queries.begin == first.queries.begin + first.count * first.queries.size();
}

}  // namespace

std::vector<SegmentPart> segment_parts(const std::vector<Range>& ranges, const PackedSegments& segments) {
  std::vector<SegmentPart> parts;
  auto run = segments.runs().begin();
  int64_t here = 0;
  for (const Range& range : ranges) {
    for (int64_t row = range.begin; row < range.end;) {
      while (run != segments.runs().end() && run->begin + run->count * run->length <= row) ++run;
      WEFT_CHECK(run != segments.runs().end(), "row {} is in no segment", row);
      const int64_t begin = row - (row - run->begin) % run->length;
      const Range segment{begin, begin + run->length};
      if (parts.empty() || parts.back().segment != segment) parts.push_back({.segment = segment, .begin = here});
      const Range piece{row, std::min(range.end, segment.end)};
      parts.back().pieces.push_back(piece);
      parts.back().num_rows += piece.size();
      here += piece.size();
      row = piece.end;
    }
  }
  return parts;
}

std::vector<AttentionBlock> own_blocks(const std::vector<SegmentPart>& own, AttentionMask mask, bool batches) {
  std::vector<AttentionBlock> blocks;
  for (const SegmentPart& part : own) {
    if (is_windowed(part, mask)) {
      add_window_blocks(part, part, /*are_own=*/true, mask, blocks);
      continue;
    }
    // An owner's rows are in order, so that causal among them is causal among all.
    const AttentionBlock block{.queries = part.here(),
                               .keys = part.here(),
                               .sees = mask.is_causal ? Sees::kCausal : Sees::kAll,
                               .has_own_keys = true};
    if (batches && !blocks.empty() && is_next_of(blocks.back(), block)) {
      ++blocks.back().count;
    } else {
      blocks.push_back(block);
    }
  }
  return blocks;
}

std::vector<AttentionBlock> blocks_between(const std::vector<SegmentPart>& queries,
                                           const std::vector<SegmentPart>& keys, AttentionMask mask) {
  std::vector<AttentionBlock> blocks;
  auto key = keys.begin();
  for (const SegmentPart& query : queries) {
    while (key != keys.end() && key->segment.begin < query.segment.begin) ++key;
    if (key == keys.end()) break;
    if (key->segment != query.segment) continue;
    if (!mask.is_causal) {
      blocks.push_back({.queries = query.here(), .keys = key->here()});
    } else if (is_windowed(query, mask)) {
      add_window_blocks(query, *key, /*are_own=*/false, mask, blocks);
    } else {
      add_causal_blocks(query, *key, blocks);
    }
  }
  return blocks;
}

std::vector<Range> used_keys(const std::vector<AttentionBlock>& blocks) {
  std::vector<Range> keys;
  for (const AttentionBlock& block : blocks) keys.push_back(block.keys);
  std::sort(keys.begin(), keys.end(), [](const Range& a, const Range& b) { return a.begin < b.begin; });
  std::vector<Range> joined;
  for (const Range& range : keys) {
    if (!joined.empty() && range.begin <= joined.back().end) {
      joined.back().end = std::max(joined.back().end, range.end);
    } else {
      joined.push_back(range);
    }
  }
  return joined;
}

std::vector<AttentionBlock> with_packed_keys(std::vector<AttentionBlock> blocks, const std::vector<Range>& keys) {
  std::vector<int64_t> moves;  // by which a range's rows come forward
  int64_t packed = 0;
  for (const Range& range : keys) {
    moves.push_back(range.begin - packed);
    packed += range.size();
  }
  for (AttentionBlock& block : blocks) {
    const auto after = std::upper_bound(keys.begin(), keys.end(), block.keys.begin,
                                        [](int64_t row, const Range& range) { return row < range.begin; });
    WEFT_CHECK(after != keys.begin() && block.keys.is_inside(*(after - 1)), "keys {} to {} are not there",
               block.keys.begin, block.keys.end);
    const int64_t move = moves[static_cast<size_t>(after - keys.begin() - 1)];
    block.keys = {block.keys.begin - move, block.keys.end - move};
  }
  return blocks;
}

namespace {

/// Whether every segment with rows on one of these ranks has all its rows there.
bool are_local(const std::vector<std::vector<Range>>& ranges, const PackedSegments& segments) {
  return std::all_of(ranges.begin(), ranges.end(), [&](const std::vector<Range>& own) {
    const std::vector<SegmentPart> parts = segment_parts(own, segments);
    return std::all_of(parts.begin(), parts.end(),
                       [](const SegmentPart& part) { return part.num_rows == part.segment.size(); });
  });
}

/// The rows of ranks, in order.
std::vector<Range> joined(const std::vector<std::vector<Range>>& ranges) {
  std::vector<Range> all;
  for (const auto& own : ranges) all.insert(all.end(), own.begin(), own.end());
  std::sort(all.begin(), all.end(), [](const Range& a, const Range& b) { return a.begin < b.begin; });
  return RowDeal({std::move(all)}).ranges(0);
}

}  // namespace

RingKeys ring_keys(const std::vector<std::vector<Range>>& ranges, const PackedSegments& segments, AttentionMask mask,
                   int64_t rank, int64_t step) {
  const auto num_ranks = static_cast<int64_t>(ranges.size());
  const auto parts_of = [&](int64_t r) { return segment_parts(ranges[static_cast<size_t>(r)], segments); };
  RingKeys keys{.to = (rank + step) % num_ranks, .from = (rank + num_ranks - step) % num_ranks};
  const std::vector<SegmentPart> own = parts_of(rank);
  keys.sent = used_keys(blocks_between(parts_of(keys.to), own, mask));
  keys.blocks = blocks_between(own, parts_of(keys.from), mask);
  keys.received = used_keys(keys.blocks);
  return keys;
}

UlyssesRows ulysses_rows(const RowDeal& deal, const PackedSegments& segments, int64_t ulysses, int64_t rank) {
  std::vector<std::vector<std::vector<Range>>> by_group(static_cast<size_t>(deal.num_ranks() / ulysses));
  for (int64_t r = 0; r < deal.num_ranks(); ++r) by_group[static_cast<size_t>(r / ulysses)].push_back(deal.ranges(r));
  UlyssesRows rows{.neighbours = by_group[static_cast<size_t>(rank / ulysses)]};
  rows.is_local = are_local(rows.neighbours, segments);
  if (rows.is_local) return rows;
  for (const auto& ranges : by_group) rows.in_ring.push_back(joined(ranges));
  return rows;
}

}  // namespace weft
