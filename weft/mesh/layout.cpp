#include "weft/mesh/layout.h"

#include <algorithm>
#include <functional>
#include <numeric>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "weft/base/text.h"

namespace weft {
namespace {

Result<bool> check_shape(const std::vector<int64_t>& shape) {
  if (shape.size() > Layout::kMostDims)
    return Error{.problem =
                     fmt::format("a tensor has {} dims, at most {} are allowed", shape.size(), Layout::kMostDims)};
  int64_t product = 1;
  for (const int64_t size : shape) {
    if (size < 0) return Error{.problem = fmt::format("shape [{}] has a negative size", fmt::join(shape, ", "))};
    // A zero must not hide a product that overflows before it is reached.
    if (std::max<int64_t>(size, 1) > Layout::kMostElements / product)
      return Error{.problem = fmt::format("shape [{}] has more than {} elements", fmt::join(shape, ", "),
                                          with_commas(Layout::kMostElements))};
    product *= std::max<int64_t>(size, 1);
  }
  return true;
}

std::vector<int64_t> counts_outermost_first(const AxisGrid& grid, const AxisList& axes) {
  std::vector<int64_t> counts;
  for (const size_t axis : axes) counts.push_back(grid.size(axis));
  std::reverse(counts.begin(), counts.end());
  return counts;
}

Result<Split> explicit_split(const PartSizes& given, int64_t length, std::vector<int64_t> counts) {
  const int64_t num_parts = std::accumulate(counts.begin(), counts.end(), int64_t{1}, std::multiplies<>());
  if (static_cast<int64_t>(given.sizes.size()) != num_parts) {
    return Error{.problem = fmt::format("{} sizes are given for dim {}, which is cut into {} parts", given.sizes.size(),
                                        given.dim, num_parts)};
  }
  int64_t sum = 0;
  for (const int64_t size : given.sizes) {
    if (size < 0 || size > length)
      return Error{.problem =
                       fmt::format("a part of dim {} has size {}, 0 to {} is possible", given.dim, size, length)};
    sum = std::min(sum + size, 2 * Layout::kMostElements);
  }
  if (sum != length) {
    return Error{.problem = fmt::format("the parts of dim {} have {} = {} indices, but the dim has {}", given.dim,
                                        printable(fmt::format("{}", fmt::join(given.sizes, " + "))), sum, length)};
  }
  return Split(given.sizes, std::move(counts));
}

}  // namespace

AxisState AxisState::gradient() const {
  switch (spread) {
    case Spread::kPartial:
      return replicated_partial_grad();
    case Spread::kReplicatedPartialGrad:
      return partial();
    case Spread::kShard:
    case Spread::kReplicated:
      break;
  }
  return *this;
}

std::string AxisState::text() const {
  switch (spread) {
    case Spread::kShard:
      return fmt::format("shard {}", dim);
    case Spread::kPartial:
      return "partial";
    case Spread::kReplicated:
      return "replicated";
    case Spread::kReplicatedPartialGrad:
      break;
  }
  return "replicated with partial gradient";
}

Result<Layout> Layout::create(AxisGrid grid, std::vector<int64_t> shape, std::vector<AxisState> states,
                              const std::vector<PartSizes>& part_sizes) {
  WEFT_TRY([[maybe_unused]] const bool is_good, check_shape(shape));
  if (states.size() != grid.num_axes()) {
    return Error{.problem = fmt::format("a layout has {} states, but the mesh {} has {} axes", states.size(),
                                        grid.text(), grid.num_axes())};
  }
  std::vector<AxisList> shard_axes(shape.size());
  for (size_t axis = 0; axis < states.size(); ++axis) {
    if (!states[axis].is_shard()) continue;
    if (states[axis].dim >= shape.size()) {
      return Error{.problem = fmt::format("axis {} shards dim {}, but the tensor has {} dims",
                                          in_quotes(grid.axes()[axis].name), states[axis].dim, shape.size())};
    }
    shard_axes[states[axis].dim].push_back(axis);
  }
  std::vector<Split> splits;
  for (size_t dim = 0; dim < shape.size(); ++dim)
    splits.emplace_back(shape[dim], counts_outermost_first(grid, shard_axes[dim]));
  for (const PartSizes& given : part_sizes) {
    if (given.dim >= shape.size())
      return Error{.problem = fmt::format("sizes are given for dim {} of {}", given.dim, shape.size())};
    WEFT_TRY(splits[given.dim], explicit_split(given, shape[given.dim], splits[given.dim].counts()));
  }
  return of_splits(std::move(grid), std::move(states), std::move(splits));
}

Layout Layout::of_splits(AxisGrid grid, std::vector<AxisState> states, std::vector<Split> splits) {
  Layout layout;
  layout.grid_ = std::move(grid);
  layout.states_ = std::move(states);
  layout.splits_ = std::move(splits);
  layout.shard_axes_.resize(layout.splits_.size());
  WEFT_CHECK(layout.states_.size() == layout.grid_.num_axes(), "{} states", layout.states_.size());
  for (size_t axis = 0; axis < layout.states_.size(); ++axis) {
    AxisState& state = layout.states_[axis];
    if (state.is_shard()) {
      WEFT_CHECK(state.dim < layout.splits_.size(), "dim {} of {}", state.dim, layout.splits_.size());
      layout.shard_axes_[state.dim].push_back(axis);
    } else {
      state.dim = 0;
    }
  }
  for (size_t dim = 0; dim < layout.splits_.size(); ++dim) {
    const Split& split = layout.splits_[dim];
    layout.shape_.push_back(split.length());
    WEFT_CHECK(split.counts() == counts_outermost_first(layout.grid_, layout.shard_axes_[dim]),
               "dim {} is cut over other axes than those that shard it", dim);
  }
  return layout;
}

AxisList Layout::partial_axes() const {
  AxisList axes;
  for (size_t axis = 0; axis < states_.size(); ++axis) {
    if (states_[axis].is_partial()) axes.push_back(axis);
  }
  return axes;
}

AxisList Layout::replicated_axes() const {
  AxisList axes;
  for (size_t axis = 0; axis < states_.size(); ++axis) {
    if (states_[axis].is_replicated()) axes.push_back(axis);
  }
  return axes;
}

Range Layout::range(size_t dim, int64_t position) const {
  int64_t part = 0;
  int64_t stride = 1;
  for (const size_t axis : shard_axes_[dim]) {
    part += grid_.coordinate(position, axis) * stride;
    stride *= grid_.size(axis);
  }
  return splits_[dim].part(part);
}

Box Layout::box(int64_t position) const {
  Box box(num_dims());
  for (size_t dim = 0; dim < num_dims(); ++dim) box[dim] = range(dim, position);
  return box;
}

std::vector<int64_t> Layout::local_shape(int64_t position) const {
  std::vector<int64_t> shape;
  for (size_t dim = 0; dim < num_dims(); ++dim) shape.push_back(range(dim, position).size());
  return shape;
}

int64_t Layout::num_local_elements(int64_t position) const {
  int64_t product = 1;
  for (size_t dim = 0; dim < num_dims(); ++dim) product *= range(dim, position).size();
  return product;
}

int64_t Layout::num_elements() const {
  return std::accumulate(shape_.begin(), shape_.end(), int64_t{1}, std::multiplies<>());
}

Layout Layout::gradient() const {
  Layout layout = *this;
  for (AxisState& state : layout.states_) state = state.gradient();
  return layout;
}

std::string Layout::text() const {
  std::string text = fmt::format("[{}] on {}", fmt::join(shape_, ", "), grid_.text());
  for (size_t axis = 0; axis < states_.size(); ++axis)
    text += fmt::format("{}{} {}", axis == 0 ? ": " : ", ", printable(grid_.axes()[axis].name), states_[axis].text());
  for (size_t dim = 0; dim < num_dims(); ++dim) {
    if (!splits_[dim].is_balanced())
      text += fmt::format("; dim {} as {}", dim, printable(fmt::format("{}", fmt::join(splits_[dim].sizes(), " + "))));
  }
  return text;
}

}  // namespace weft
