#include "weft/data/text/byte_pairs.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <functional>
#include <limits>
#include <queue>

#include "weft/base/check.h"

namespace weft {
namespace {

/// Up to so many bytes a scan for the first merge beats a heap.
constexpr size_t kShort = 48;

uint64_t mixed(uint64_t x) {
  x *= 0x9e3779b97f4a7c15ULL;
  return x ^ (x >> 32);
}

uint64_t pair_of(int32_t first, int32_t second) {
  return static_cast<uint64_t>(static_cast<uint32_t>(first)) << 32 | static_cast<uint32_t>(second);
}

}  // namespace

PieceCache::Entry& PieceCache::place_of(std::string_view piece) {
  uint64_t hash = piece.size();
  size_t i = 0;
  for (; i + 8 <= piece.size(); i += 8) {
    uint64_t word = 0;
    std::memcpy(&word, piece.data() + i, 8);
    hash = mixed(hash ^ word);
  }
  uint64_t rest = 0;
  for (; i < piece.size(); ++i) rest = rest << 8 | static_cast<unsigned char>(piece[i]);
  hash = mixed(hash ^ rest);
  return entries_[hash % kNumEntries];
}

BytePairs::BytePairs(const std::array<int32_t, 256>& byte_ids, const std::vector<Merge>& merges,
                     std::unordered_map<std::string, int32_t> whole)
    : byte_ids_(byte_ids), slots_(std::bit_ceil(std::max<size_t>(2 * merges.size(), 2))), whole_(std::move(whole)) {
  mask_ = slots_.size() - 1;
  for (size_t rank = 0; rank < merges.size(); ++rank) {
    const uint64_t pair = pair_of(merges[rank].first, merges[rank].second);
    size_t at = mixed(pair) & mask_;
    while (slots_[at].pair != kEmpty && slots_[at].pair != pair) at = (at + 1) & mask_;
    // Where a pair is given twice, the later one counts.
    slots_[at] = {pair, static_cast<int32_t>(rank), merges[rank].joined};
  }
}

const BytePairs::Slot* BytePairs::find(int32_t first, int32_t second) const {
  const uint64_t pair = pair_of(first, second);
  for (size_t at = mixed(pair) & mask_;; at = (at + 1) & mask_) {
    if (slots_[at].pair == pair) return &slots_[at];
    if (slots_[at].pair == kEmpty) return nullptr;
  }
}

void BytePairs::encode(std::string_view piece, PieceCache& cache, std::vector<int64_t>& ids) const {
  if (piece.size() == 1) {
    ids.push_back(byte_ids_[static_cast<unsigned char>(piece[0])]);
    return;
  }
  PieceCache::Entry* entry = nullptr;
  if (piece.size() <= PieceCache::kMostBytes) {
    entry = &cache.place_of(piece);
    if (entry->num_bytes == piece.size() && std::memcmp(entry->bytes.data(), piece.data(), piece.size()) == 0) {
      ids.insert(ids.end(), entry->ids.begin(), entry->ids.begin() + entry->num_ids);
      return;
    }
  }
  const size_t before = ids.size();
  const auto known = whole_.empty() ? whole_.end() : whole_.find(std::string(piece));
  if (known != whole_.end()) {
    ids.push_back(known->second);
  } else if (piece.size() <= kShort) {
    merge_short(piece, ids);
  } else {
    merge_long(piece, ids);
  }
  const size_t num_ids = ids.size() - before;
  if (entry == nullptr || num_ids > PieceCache::kMostIds) return;
  entry->num_bytes = static_cast<uint8_t>(piece.size());
  entry->num_ids = static_cast<uint8_t>(num_ids);
  std::memcpy(entry->bytes.data(), piece.data(), piece.size());
  for (size_t i = 0; i < num_ids; ++i) entry->ids[i] = static_cast<int32_t>(ids[before + i]);
}

void BytePairs::merge_short(std::string_view piece, std::vector<int64_t>& ids) const {
  constexpr int32_t kNever = std::numeric_limits<int32_t>::max();
  std::array<int32_t, kShort> tokens;
  std::array<int32_t, kShort> ranks;
  std::array<int32_t, kShort> joined;
  size_t size = piece.size();
  WEFT_CHECK(size <= kShort, "a piece of {} bytes is not short", size);
  const auto look = [&](size_t i) {
    const Slot* slot = find(tokens[i], tokens[i + 1]);
    ranks[i] = slot != nullptr ? slot->rank : kNever;
    joined[i] = slot != nullptr ? slot->joined : 0;
  };
  for (size_t i = 0; i < size; ++i) tokens[i] = byte_ids_[static_cast<unsigned char>(piece[i])];
  for (size_t i = 0; i + 1 < size; ++i) look(i);
  while (size > 1) {
    size_t best = 0;
    for (size_t i = 1; i + 1 < size; ++i) {
      if (ranks[i] < ranks[best]) best = i;
    }
    if (ranks[best] == kNever) break;
    tokens[best] = joined[best];
    --size;
    const auto close = [&](auto& values, size_t at) {
      std::copy(values.begin() + static_cast<std::ptrdiff_t>(at) + 1,
                values.begin() + static_cast<std::ptrdiff_t>(size) + 1,
                values.begin() + static_cast<std::ptrdiff_t>(at));
    };
    close(tokens, best + 1);
    if (best + 1 < size) {
      close(ranks, best);
      close(joined, best);
      look(best);
    }
    if (best > 0) look(best - 1);
  }
  ids.insert(ids.end(), tokens.begin(), tokens.begin() + static_cast<std::ptrdiff_t>(size));
}

void BytePairs::merge_long(std::string_view piece, std::vector<int64_t>& ids) const {
  struct Node {
    int32_t token;
    int32_t before;
    int32_t after;
  };
  struct Candidate {
    int32_t rank;
    int32_t at;
    int32_t first, second, joined;

    bool operator>(const Candidate& other) const { return rank != other.rank ? rank > other.rank : at > other.at; }
  };
  const auto size = static_cast<int32_t>(piece.size());
  std::vector<Node> nodes(piece.size());
  std::priority_queue<Candidate, std::vector<Candidate>, std::greater<>> candidates;
  const auto offer = [&](int32_t at) {
    if (at < 0 || nodes[static_cast<size_t>(at)].after == size) return;
    const Node& node = nodes[static_cast<size_t>(at)];
    const int32_t second = nodes[static_cast<size_t>(node.after)].token;
    if (const Slot* slot = find(node.token, second))
      candidates.push({slot->rank, at, node.token, second, slot->joined});
  };
  for (int32_t i = 0; i < size; ++i) {
    nodes[static_cast<size_t>(i)] = {byte_ids_[static_cast<unsigned char>(piece[static_cast<size_t>(i)])], i - 1,
                                     i + 1};
  }
  for (int32_t i = 0; i < size; ++i) offer(i);
  constexpr int32_t kGone = -1;
  while (!candidates.empty()) {
    const Candidate best = candidates.top();
    candidates.pop();
    Node& node = nodes[static_cast<size_t>(best.at)];
    // Merges nearby make a candidate stale.
    if (node.token != best.first || node.after == size) continue;
    Node& next = nodes[static_cast<size_t>(node.after)];
    if (next.token != best.second) continue;
    node.token = best.joined;
    next.token = kGone;
    node.after = next.after;
    if (node.after != size) nodes[static_cast<size_t>(node.after)].before = best.at;
    offer(node.before);
    offer(best.at);
  }
  for (int32_t i = 0; i != size; i = nodes[static_cast<size_t>(i)].after) {
    ids.push_back(nodes[static_cast<size_t>(i)].token);
  }
}

}  // namespace weft
