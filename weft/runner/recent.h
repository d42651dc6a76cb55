#pragma once

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

namespace weft {

/// What was made for the keys that were asked for last; who still uses an older one keeps it.
template <typename Key, typename Made>
class Recent {
 public:
  explicit Recent(size_t most) : most_(most) {}

  template <typename Make>
  std::shared_ptr<const Made> get(const Key& key, Make make) {
    const auto found = std::find_if(list_.begin(), list_.end(), [&](const auto& entry) { return entry.first == key; });
    if (found != list_.end()) {
      std::rotate(list_.begin(), found, found + 1);
    } else {
      if (list_.size() == most_) list_.pop_back();
      list_.insert(list_.begin(), {key, std::make_shared<const Made>(make())});
    }
    return list_.front().second;
  }

 private:
  size_t most_;
  std::vector<std::pair<Key, std::shared_ptr<const Made>>> list_;  ///< the last one first
};

}  // namespace weft
