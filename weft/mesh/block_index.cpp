#include "weft/mesh/block_index.h"

#include <algorithm>

namespace weft {

BlockIndex::BlockIndex(const Layout& layout) : layout_(layout) {
  const AxisGrid& grid = layout.grid();
  AxisList cut;
  int64_t stride = 1;
  for (size_t dim = 0; dim < layout.num_dims(); ++dim) {
    const std::vector<int64_t> offsets = grid.group_offsets(layout.shard_axes(dim));
    const std::vector<Range> ranges = layout.split(dim).parts();
    std::vector<Part>& parts = parts_.emplace_back();
    for (size_t i = 0; i < ranges.size(); ++i) {
      if (!ranges[i].empty()) parts.push_back({ranges[i], static_cast<int64_t>(i), offsets[i]});
    }
    strides_.push_back(stride);
    stride *= layout.split(dim).num_parts();
    cut.insert(cut.end(), layout.shard_axes(dim).begin(), layout.shard_axes(dim).end());
  }
  copy_offsets_ = grid.group_offsets(grid.all_but(cut));
}

std::optional<int64_t> BlockIndex::at(int64_t position) const {
  int64_t block = 0;
  for (size_t dim = 0; dim < parts_.size(); ++dim) {
    if (layout_.range(dim, position).empty()) return std::nullopt;
    block += layout_.grid().group_index(position, layout_.shard_axes(dim)) * strides_[dim];
  }
  return block;
}

std::vector<int64_t> BlockIndex::holders(int64_t block) const {
  int64_t base = 0;
  for (size_t dim = 0; dim < parts_.size(); ++dim) {
    const int64_t number = block / strides_[dim] % layout_.split(dim).num_parts();
    const auto part = std::lower_bound(parts_[dim].begin(), parts_[dim].end(), number,
                                       [](const Part& a, int64_t b) { return a.number < b; });
    base += part->offset;
  }
  std::vector<int64_t> positions = copy_offsets_;
  for (int64_t& position : positions) position += base;
  return positions;
}

void BlockIndex::for_each_overlap(const Box& box, const std::function<void(int64_t, Box)>& f) const {
  if (std::any_of(box.begin(), box.end(), [](const Range& range) { return range.empty(); })) return;
  std::vector<size_t> first(parts_.size());
  for (size_t dim = 0; dim < parts_.size(); ++dim) {
    const auto found = std::upper_bound(parts_[dim].begin(), parts_[dim].end(), box[dim].begin,
                                        [](int64_t begin, const Part& part) { return begin < part.range.end; });
    first[dim] = static_cast<size_t>(found - parts_[dim].begin());
  }
  for (std::vector<size_t> at = first;;) {
    int64_t block = 0;
    Box part(box.size());
    for (size_t dim = 0; dim < at.size(); ++dim) {
      block += parts_[dim][at[dim]].number * strides_[dim];
      part[dim] = intersection(box[dim], parts_[dim][at[dim]].range);
    }
    f(block, std::move(part));
    // On to the next overlap, counting through the dims.
    size_t dim = 0;
    for (; dim < at.size(); ++dim) {
      if (++at[dim] < parts_[dim].size() && parts_[dim][at[dim]].range.begin < box[dim].end) break;
      at[dim] = first[dim];
    }
    if (dim == at.size()) return;
  }
}

}  // namespace weft
