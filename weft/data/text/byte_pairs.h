#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace weft {

/// Remembers the tokens of short pieces, for one thread: most of a text is words that were seen before.
class PieceCache {
 public:
  static constexpr size_t kMostBytes = 30;
  static constexpr size_t kMostIds = 8;

  PieceCache() : entries_(kNumEntries) {}

  struct Entry {
    uint8_t num_bytes = 0;
    uint8_t num_ids = 0;
    std::array<char, kMostBytes> bytes{};
    std::array<int32_t, kMostIds> ids{};
  };
  /// The place of a piece of 1 to kMostBytes bytes; it holds that piece, another one, or none.
  Entry& place_of(std::string_view piece);

 private:
  static constexpr size_t kNumEntries = 1 << 15;
  std::vector<Entry> entries_;
};

/// The merges of a byte-level vocabulary. A piece begins as its bytes; of all neighbours that a merge joins, the merge
/// that was learnt first goes first, from the left.
class BytePairs {
 public:
  struct Merge {
    int32_t first;
    int32_t second;
    int32_t joined;
  };

  BytePairs() = default;
  /// `whole` are pieces that are a token without being merged.
  BytePairs(const std::array<int32_t, 256>& byte_ids, const std::vector<Merge>& merges,
            std::unordered_map<std::string, int32_t> whole);

  void encode(std::string_view piece, PieceCache& cache, std::vector<int64_t>& ids) const;

 private:
  struct Slot {
    uint64_t pair = kEmpty;
    int32_t rank = 0;
    int32_t joined = 0;
  };
  static constexpr uint64_t kEmpty = ~uint64_t{0};

  const Slot* find(int32_t first, int32_t second) const;
  void merge_short(std::string_view piece, std::vector<int64_t>& ids) const;
  void merge_long(std::string_view piece, std::vector<int64_t>& ids) const;

  std::array<int32_t, 256> byte_ids_{};
  std::vector<Slot> slots_;
  uint64_t mask_ = 0;
  std::unordered_map<std::string, int32_t> whole_;
};

}  // namespace weft
