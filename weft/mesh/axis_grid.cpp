#include "weft/mesh/axis_grid.h"

#include <algorithm>

#include <fmt/format.h>

#include "weft/base/text.h"

namespace weft {

Result<AxisGrid> AxisGrid::create(const std::vector<Axis>& axes) {
  if (axes.size() > kMostAxes)
    return Error{.problem = fmt::format("a mesh has {} axes, at most {} are allowed", axes.size(), kMostAxes)};
  AxisGrid grid;
  for (const Axis& axis : axes) {
    if (axis.name.empty()) return Error{.problem = "an axis of a mesh has no name"};
    if (axis.size < 1)
      return Error{.problem =
                       fmt::format("axis {} has size {}, at least 1 is needed", in_quotes(axis.name), axis.size)};
    if (grid.find(axis.name)) return Error{.problem = fmt::format("axis {} is given twice", in_quotes(axis.name))};
    grid.strides_.push_back(grid.num_positions_);
    grid.axes_.push_back(axis);
    if (axis.size > kMostPositions / grid.num_positions_)
      return Error{.problem = fmt::format("{} is more than {} ranks", grid.text(), with_commas(kMostPositions))};
    grid.num_positions_ *= axis.size;
  }
  return grid;
}

std::optional<size_t> AxisGrid::find(std::string_view name) const {
  for (size_t axis = 0; axis < axes_.size(); ++axis) {
    if (axes_[axis].name == name) return axis;
  }
  return std::nullopt;
}

size_t AxisGrid::axis(std::string_view name) const {
  const std::optional<size_t> found = find(name);
  WEFT_CHECK(found, "no axis '{}' in {}", name, text());
  return *found;
}

AxisList AxisGrid::axes_named(std::initializer_list<std::string_view> names) const {
  AxisList list;
  for (const std::string_view name : names) list.push_back(axis(name));
  return in_order(list);
}

AxisList AxisGrid::all_axes() const {
  return all_but({});
}

AxisList AxisGrid::all_but(const AxisList& axes) const {
  AxisList others;
  for (size_t axis = 0; axis < axes_.size(); ++axis) {
    if (std::find(axes.begin(), axes.end(), axis) == axes.end()) others.push_back(axis);
  }
  return others;
}

std::vector<int64_t> AxisGrid::coordinates(int64_t position) const {
  std::vector<int64_t> coordinates;
  for (size_t axis = 0; axis < axes_.size(); ++axis) coordinates.push_back(coordinate(position, axis));
  return coordinates;
}

int64_t AxisGrid::position(std::span<const int64_t> coordinates) const {
  WEFT_CHECK(coordinates.size() == axes_.size(), "{} coordinates for {}", coordinates.size(), text());
  int64_t position = 0;
  for (size_t axis = 0; axis < axes_.size(); ++axis) {
    WEFT_CHECK(coordinates[axis] >= 0 && coordinates[axis] < axes_[axis].size, "coordinate {} on axis {}",
               coordinates[axis], axes_[axis].name);
    position += coordinates[axis] * strides_[axis];
  }
  return position;
}

int64_t AxisGrid::group_size(const AxisList& axes) const {
  int64_t size = 1;
  for (const size_t axis : in_order(axes)) size *= axes_[axis].size;
  return size;
}

std::vector<int64_t> AxisGrid::group_offsets(const AxisList& axes) const {
  std::vector<int64_t> offsets{0};
  for (const size_t axis : in_order(axes)) {
    const size_t inner = offsets.size();
    offsets.reserve(inner * static_cast<size_t>(axes_[axis].size));
    for (int64_t coordinate = 1; coordinate < axes_[axis].size; ++coordinate) {
      for (size_t i = 0; i < inner; ++i) offsets.push_back(offsets[i] + coordinate * strides_[axis]);
    }
  }
  return offsets;
}

int64_t AxisGrid::group_base(int64_t position, const AxisList& axes) const {
  for (const size_t axis : axes) position -= coordinate(position, axis) * strides_[axis];
  return position;
}

int64_t AxisGrid::group_index(int64_t position, const AxisList& axes) const {
  int64_t index = 0;
  int64_t stride = 1;
  for (const size_t axis : in_order(axes)) {
    index += coordinate(position, axis) * stride;
    stride *= axes_[axis].size;
  }
  return index;
}

int64_t AxisGrid::group_member(int64_t position, const AxisList& axes, int64_t index) const {
  int64_t member = group_base(position, axes);
  for (const size_t axis : in_order(axes)) {
    member += index % axes_[axis].size * strides_[axis];
    index /= axes_[axis].size;
  }
  return member;
}

std::string AxisGrid::text() const {
  std::string text;
  for (const Axis& axis : axes_)
    text += fmt::format("{}{} {}", text.empty() ? "" : " × ", printable(axis.name), axis.size);
  return text.empty() ? "no axes" : text;
}

AxisList AxisGrid::in_order(const AxisList& axes) const {
  AxisList sorted = axes;
  std::sort(sorted.begin(), sorted.end());
  WEFT_CHECK(std::adjacent_find(sorted.begin(), sorted.end()) == sorted.end(), "an axis is listed twice");
  WEFT_CHECK(sorted.empty() || sorted.back() < axes_.size(), "axis {} of {}", sorted.back(), text());
  return sorted;
}

}  // namespace weft
