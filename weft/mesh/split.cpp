#include "weft/mesh/split.h"

#include "weft/base/check.h"

namespace weft {

Split::Split(int64_t length, std::vector<int64_t> counts) : length_(length), counts_(std::move(counts)) {
  WEFT_CHECK(length >= 0, "a dim of length {}", length);
  for (const int64_t count : counts_) {
    WEFT_CHECK(count >= 1, "a dim cut into {} parts", count);
    num_parts_ *= count;
  }
}

Split::Split(const std::vector<int64_t>& sizes, std::vector<int64_t> counts) : Split(0, std::move(counts)) {
  WEFT_CHECK(static_cast<int64_t>(sizes.size()) == num_parts_, "{} sizes for {} parts", sizes.size(), num_parts_);
  begins_.reserve(sizes.size() + 1);
  for (const int64_t size : sizes) {
    WEFT_CHECK(size >= 0, "a part of size {}", size);
    begins_.push_back(length_);
    length_ += size;
  }
  begins_.push_back(length_);

  if (Split(length_, counts_).parts() == parts()) begins_.clear();
}

Range Split::part(int64_t index) const {
  WEFT_CHECK(index >= 0 && index < num_parts_, "part {} of {}", index, num_parts_);
  if (!begins_.empty()) return {begins_[static_cast<size_t>(index)], begins_[static_cast<size_t>(index) + 1]};
  Range range{0, length_};
  int64_t parts = num_parts_;
  for (const int64_t count : counts_) {
    parts /= count;
    range = balanced_part(range, count, index / parts % count);
  }
  return range;
}

std::vector<Range> Split::parts() const {
  std::vector<Range> parts;
  parts.reserve(static_cast<size_t>(num_parts_));
  if (!begins_.empty()) {
    for (size_t i = 1; i < begins_.size(); ++i) parts.push_back({begins_[i - 1], begins_[i]});
    return parts;
  }
  parts.push_back({0, length_});
  for (const int64_t count : counts_) {
    std::vector<Range> finer;
    finer.reserve(static_cast<size_t>(num_parts_));
    for (const Range whole : parts) {
      const int64_t size = whole.size() / count;
      const int64_t longer = whole.size() % count;
      int64_t begin = whole.begin;
      for (int64_t i = 0; i < count; ++i) {
        const int64_t end = begin + size + (i < longer ? 1 : 0);
        finer.push_back({begin, end});
        begin = end;
      }
    }
    parts = std::move(finer);
  }
  return parts;
}

std::vector<int64_t> Split::sizes() const {
  std::vector<int64_t> sizes;
  sizes.reserve(static_cast<size_t>(num_parts_));
  for (const Range range : parts()) sizes.push_back(range.size());
  return sizes;
}

Range balanced_part(Range whole, int64_t count, int64_t index) {
  const int64_t size = whole.size() / count;
  const int64_t longer = whole.size() % count;
  const int64_t begin = whole.begin + index * size + std::min(index, longer);
  return {begin, begin + size + (index < longer ? 1 : 0)};
}

}  // namespace weft
