#pragma once

#include <cstdint>
#include <limits>
#include <vector>

namespace weft {

/// Prices by what they are of, made once each. `Key` has a hash() and ==.
/// Asked millions of times: open addresses in one list take half as long as a map of nodes.
template <typename Key, typename Value>
class PriceTable {
 public:
  /// Valid until another is asked for.
  template <typename Price>
  const Value& of(const Key& key, Price price) {
    const size_t hash = key.hash();
    const size_t slot = slot_of(key, hash);
    if (slots_[slot] != kFree) return entries_[slots_[slot]].value;
    entries_.push_back({hash, key, price()});
    slots_[slot] = static_cast<uint32_t>(entries_.size() - 1);
    // Half of the slots at most, so that few keys meet.
    if (2 * entries_.size() > slots_.size()) grow();
    return entries_.back().value;
  }

 private:
  static constexpr uint32_t kFree = std::numeric_limits<uint32_t>::max();
  struct Entry {
    size_t hash;
    Key key;
    Value value;
  };

  /// Where a key is, or would be.
  size_t slot_of(const Key& key, size_t hash) const {
    size_t slot = hash & (slots_.size() - 1);
    while (slots_[slot] != kFree) {
      const Entry& entry = entries_[slots_[slot]];
      if (entry.hash == hash && entry.key == key) break;
      slot = (slot + 1) & (slots_.size() - 1);
    }
    return slot;
  }

  void grow() {
    slots_.assign(2 * slots_.size(), kFree);
    for (size_t i = 0; i < entries_.size(); ++i) {
      size_t slot = entries_[i].hash & (slots_.size() - 1);
      while (slots_[slot] != kFree) slot = (slot + 1) & (slots_.size() - 1);
      slots_[slot] = static_cast<uint32_t>(i);
    }
  }

  std::vector<Entry> entries_;
  std::vector<uint32_t> slots_ = std::vector<uint32_t>(64, kFree);
};

}  // namespace weft
