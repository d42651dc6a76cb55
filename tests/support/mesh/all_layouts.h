#pragma once

#include <random>
#include <string>
#include <vector>

#include "weft/mesh/layout.h"

namespace weft {

// What the tests of this folder share.

/// Axes a, b, ... of the given sizes, innermost first.
inline AxisGrid grid_of(const std::vector<int64_t>& sizes) {
  std::vector<Axis> axes;
  for (const int64_t size : sizes) axes.push_back({std::string(1, static_cast<char>('a' + axes.size())), size});
  return *AxisGrid::create(axes);
}

/// Every layout of a shape on a grid, with balanced parts.
inline std::vector<Layout> all_layouts(const AxisGrid& grid, const std::vector<int64_t>& shape) {
  std::vector<AxisState> choices{AxisState::partial(), AxisState::replicated(), AxisState::replicated_partial_grad()};
  for (size_t dim = 0; dim < shape.size(); ++dim) choices.push_back(AxisState::shard(dim));
  std::vector<std::vector<AxisState>> rows{{}};
  for (size_t axis = 0; axis < grid.num_axes(); ++axis) {
    std::vector<std::vector<AxisState>> longer;
    for (const std::vector<AxisState>& row : rows) {
      for (const AxisState& choice : choices) {
        longer.push_back(row);
        longer.back().push_back(choice);
      }
    }
    rows = std::move(longer);
  }
  std::vector<Layout> layouts;
  for (const std::vector<AxisState>& row : rows) layouts.push_back(*Layout::create(grid, shape, row));
  return layouts;
}

/// Sizes of `parts` parts that sum to `length`, drawn at random; many are zero.
inline std::vector<int64_t> random_sizes(int64_t length, int64_t parts, std::mt19937_64& random) {
  std::vector<int64_t> sizes(static_cast<size_t>(parts), 0);
  while (length > 0) {
    const auto piece = static_cast<int64_t>(random() % static_cast<uint64_t>(length)) + 1;
    sizes[random() % sizes.size()] += piece;
    length -= piece;
  }
  return sizes;
}

/// The layout with random sizes for the parts of every sharded dim.
inline Layout with_random_sizes(const Layout& layout, std::mt19937_64& random) {
  std::vector<PartSizes> sizes;
  for (size_t dim = 0; dim < layout.num_dims(); ++dim)
    sizes.push_back({dim, random_sizes(layout.shape()[dim], layout.split(dim).num_parts(), random)});
  return *Layout::create(layout.grid(), layout.shape(), layout.states(), sizes);
}

/// A layout with random states and, now and then, random part sizes.
inline Layout random_layout(const AxisGrid& grid, const std::vector<int64_t>& shape, std::mt19937_64& random) {
  std::vector<AxisState> states;
  for (size_t axis = 0; axis < grid.num_axes(); ++axis) {
    const size_t choice = random() % (shape.size() * 2 + 3);
    states.push_back(choice == 0   ? AxisState::partial()
                     : choice == 1 ? AxisState::replicated()
                     : choice == 2 ? AxisState::replicated_partial_grad()
                                   : AxisState::shard((choice - 3) / 2));
  }
  const Layout layout = *Layout::create(grid, shape, states);
  return random() % 2 == 0 ? layout : with_random_sizes(layout, random);
}

}  // namespace weft
