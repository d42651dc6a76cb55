#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "weft/base/result.h"

namespace weft {

/// A named direction of a mesh.
struct Axis {
  std::string name;
  int64_t size = 1;

  bool operator==(const Axis&) const = default;
};

/// Axes by their number in a grid. Functions that take one join the axes in the grid's own order, whatever the order
/// here.
using AxisList = std::vector<size_t>;

/// Named axes, innermost first, and the positions 0, 1, ... that their coordinates count through: the first axis's
/// coordinate runs fastest. A mesh puts ranks on the positions.
class AxisGrid {
 public:
  static constexpr size_t kMostAxes = 8;
  static constexpr int64_t kMostPositions = int64_t{1} << 24;

  /// No axes at all is one position.
  AxisGrid() = default;
  static Result<AxisGrid> create(const std::vector<Axis>& axes);

  const std::vector<Axis>& axes() const { return axes_; }
  size_t num_axes() const { return axes_.size(); }
  int64_t num_positions() const { return num_positions_; }
  int64_t size(size_t axis) const { return axes_[axis].size; }
  /// What one step along the axis adds to a position.
  int64_t stride(size_t axis) const { return strides_[axis]; }

  std::optional<size_t> find(std::string_view name) const;
  /// The axis must be there.
  size_t axis(std::string_view name) const;
  AxisList axes_named(std::initializer_list<std::string_view> names) const;
  AxisList all_axes() const;
  AxisList all_but(const AxisList& axes) const;

  int64_t coordinate(int64_t position, size_t axis) const { return position / strides_[axis] % axes_[axis].size; }
  std::vector<int64_t> coordinates(int64_t position) const;
  int64_t position(std::span<const int64_t> coordinates) const;

  /// The number of positions in a group along the joined axes.
  int64_t group_size(const AxisList& axes) const;
  /// What to add to a position whose coordinates on `axes` are 0 to reach every member of its group, in group order.
  std::vector<int64_t> group_offsets(const AxisList& axes) const;
  /// The member of the position's group along `axes` whose coordinates there are 0.
  int64_t group_base(int64_t position, const AxisList& axes) const;
  /// The place of a position within its group: its coordinates on `axes`, joined.
  int64_t group_index(int64_t position, const AxisList& axes) const;
  /// The member at that place of the position's group.
  int64_t group_member(int64_t position, const AxisList& axes, int64_t index) const;

  /// "tp 4 × dp 2".
  std::string text() const;

  bool operator==(const AxisGrid& other) const { return axes_ == other.axes_; }

 private:
  AxisList in_order(const AxisList& axes) const;

  std::vector<Axis> axes_;
  std::vector<int64_t> strides_;
  int64_t num_positions_ = 1;
};

}  // namespace weft
