#include "weft/mesh/mesh.h"

#include <algorithm>
#include <numeric>
#include <span>

#include <fmt/format.h>

#include "weft/mesh/expert_axes.h"

namespace weft {

Result<Mesh> Mesh::create(const std::vector<Axis>& axes, std::vector<int64_t> ranks) {
  Mesh mesh;
  WEFT_TRY(mesh.grid_, AxisGrid::create(axes));
  const auto num_ranks = static_cast<int64_t>(ranks.size());
  if (mesh.num_ranks() != num_ranks) {
    return Error{.problem = fmt::format("{} = {}, but there {} {} rank{}", mesh.grid_.text(), mesh.num_ranks(),
                                        num_ranks == 1 ? "is" : "are", num_ranks, num_ranks == 1 ? "" : "s")};
  }
  mesh.positions_.reserve(ranks.size());
  for (const int64_t rank : ranks) {
    if (rank < 0) return Error{.problem = fmt::format("rank {} is negative", rank)};
    mesh.positions_.emplace_back(rank, static_cast<int64_t>(mesh.positions_.size()));
  }
  // Nearly all meshes list their ranks in order.
  if (!std::is_sorted(mesh.positions_.begin(), mesh.positions_.end()))
    std::sort(mesh.positions_.begin(), mesh.positions_.end());
  for (size_t i = 1; i < ranks.size(); ++i) {
    if (mesh.positions_[i].first == mesh.positions_[i - 1].first)
      return Error{.problem = fmt::format("rank {} is in the mesh twice", mesh.positions_[i].first)};
  }
  mesh.ranks_ = std::move(ranks);
  return mesh;
}

Result<Mesh> Mesh::contiguous(const std::vector<Axis>& axes, int64_t first_rank) {
  WEFT_TRY(const AxisGrid grid, AxisGrid::create(axes));
  std::vector<int64_t> ranks(static_cast<size_t>(grid.num_positions()));
  std::iota(ranks.begin(), ranks.end(), first_rank);
  return create(axes, std::move(ranks));
}

std::optional<int64_t> Mesh::find(int64_t rank) const {
  // Nearly all meshes have ranks without gaps.
  const auto place = static_cast<size_t>(rank - positions_.front().first);
  if (place < positions_.size() && positions_[place].first == rank) return positions_[place].second;
  const auto found = std::lower_bound(positions_.begin(), positions_.end(), std::pair(rank, int64_t{0}));
  if (found == positions_.end() || found->first != rank) return std::nullopt;
  return found->second;
}

int64_t Mesh::position_of(int64_t rank) const {
  const std::optional<int64_t> position = find(rank);
  WEFT_CHECK(position, "rank {} is not in the mesh {}", rank, grid_.text());
  return *position;
}

std::vector<std::vector<int64_t>> Mesh::groups(const AxisList& axes) const {
  const std::vector<int64_t> offsets = grid_.group_offsets(axes);
  std::vector<std::vector<int64_t>> groups;
  groups.reserve(static_cast<size_t>(num_ranks()) / offsets.size());
  for (const int64_t base : grid_.group_offsets(grid_.all_but(axes))) {
    std::vector<int64_t>& group = groups.emplace_back();
    group.reserve(offsets.size());
    for (const int64_t offset : offsets) group.push_back(rank_at(base + offset));
  }
  return groups;
}

std::vector<int64_t> Mesh::group_of(int64_t rank, const AxisList& axes) const {
  const int64_t base = grid_.group_base(position_of(rank), axes);
  std::vector<int64_t> group = grid_.group_offsets(axes);
  for (int64_t& member : group) member = rank_at(base + member);
  return group;
}

std::string Mesh::group_name(const AxisList& axes) const {
  AxisList sorted = axes;
  std::sort(sorted.begin(), sorted.end());
  std::string name;
  for (const size_t axis : sorted) name += (name.empty() ? "" : "+") + grid_.axes()[axis].name;
  return name.empty() ? "self" : name;
}

Mesh Mesh::sub_mesh(std::span<const std::pair<size_t, int64_t>> fixed) const {
  std::vector<int64_t> coordinates(grid_.num_axes(), 0);
  AxisList gone;
  for (const auto& [axis, coordinate] : fixed) {
    WEFT_CHECK(axis < grid_.num_axes(), "axis {} of {}", axis, grid_.text());
    coordinates[axis] = coordinate;
    gone.push_back(axis);
  }
  return sub_mesh_around(rank_at(coordinates), grid_.all_but(gone));
}

Mesh Mesh::sub_mesh_around(int64_t rank, const AxisList& axes) const {
  std::vector<Axis> kept;
  for (const size_t axis : grid_.all_but(grid_.all_but(axes))) kept.push_back(grid_.axes()[axis]);
  return *create(kept, group_of(rank, axes));
}

std::vector<std::string> default_axis_order() {
  return {"tp", "cp", "dp", "pp"};
}

Result<Mesh> expert_view(const Mesh& mesh, int64_t ep, bool over_tp) {
  const AxisGrid& grid = mesh.grid();
  const std::span<const std::string> names = expert_axes(over_tp);
  AxisList joined;
  std::string product;
  for (size_t axis = 0; axis < grid.num_axes(); ++axis) {
    const std::string& name = grid.axes()[axis].name;
    if (std::find(names.begin(), names.end(), name) == names.end()) continue;
    joined.push_back(axis);
    product += fmt::format("{}{} {}", product.empty() ? "" : " × ", name, grid.size(axis));
  }
  if (joined.empty()) return Error{.problem = fmt::format("{} has neither cp nor dp to carve ep from", grid.text())};
  const int64_t num_joined = grid.group_size(joined);
  if (ep < 1 || num_joined % ep != 0) {
    return Error{.problem = fmt::format("ep is {}, which does not divide {}{}", ep, product,
                                        joined.size() > 1 ? fmt::format(" = {}", num_joined) : "")};
  }

  std::vector<Axis> axes;
  for (size_t axis = 0; axis < grid.num_axes(); ++axis) {
    if (axis == joined.front()) axes.push_back({"ep", ep});
    if (axis == joined.back()) axes.push_back({"edp", num_joined / ep});
    if (std::find(joined.begin(), joined.end(), axis) == joined.end()) axes.push_back(grid.axes()[axis]);
  }
  WEFT_TRY(const AxisGrid carved, AxisGrid::create(axes));
  const size_t ep_axis = carved.axis("ep");
  const size_t edp_axis = carved.axis("edp");
  std::vector<int64_t> strides(carved.num_axes(), 0);  // in the original mesh, of the axes that stay
  for (size_t axis = 0; axis < carved.num_axes(); ++axis) {
    if (axis != ep_axis && axis != edp_axis) strides[axis] = grid.stride(grid.axis(axes[axis].name));
  }

  const std::vector<int64_t> joined_offsets = grid.group_offsets(joined);
  std::vector<int64_t> ranks;
  ranks.reserve(static_cast<size_t>(carved.num_positions()));
  for (int64_t position = 0; position < carved.num_positions(); ++position) {
    const int64_t place = carved.coordinate(position, edp_axis) * ep + carved.coordinate(position, ep_axis);
    int64_t original = joined_offsets[static_cast<size_t>(place)];
    for (size_t axis = 0; axis < carved.num_axes(); ++axis)
      original += carved.coordinate(position, axis) * strides[axis];
    ranks.push_back(mesh.rank_at(original));
  }
  return Mesh::create(axes, std::move(ranks));
}

}  // namespace weft
