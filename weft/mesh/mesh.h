#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "weft/base/result.h"
#include "weft/mesh/axis_grid.h"

namespace weft {

/// Ranks with named axes: a grid, innermost axis first, and the rank at each of its positions. Any ranks will do: they
/// need not start at 0, be contiguous or cover the world.
class Mesh {
 public:
  /// One rank per position of the axes, no rank twice.
  static Result<Mesh> create(const std::vector<Axis>& axes, std::vector<int64_t> ranks);
  /// Ranks first_rank, first_rank + 1, ... as many as the axes have positions.
  static Result<Mesh> contiguous(const std::vector<Axis>& axes, int64_t first_rank = 0);

  const AxisGrid& grid() const { return grid_; }
  const std::vector<Axis>& axes() const { return grid_.axes(); }
  int64_t num_ranks() const { return grid_.num_positions(); }
  /// By position.
  std::span<const int64_t> ranks() const { return ranks_; }

  int64_t rank_at(int64_t position) const { return ranks_[static_cast<size_t>(position)]; }
  int64_t rank_at(std::span<const int64_t> coordinates) const { return rank_at(grid_.position(coordinates)); }
  /// Nothing for a rank that is not in the mesh.
  std::optional<int64_t> find(int64_t rank) const;
  bool contains(int64_t rank) const { return find(rank).has_value(); }
  /// The rank must be in the mesh, here and below.
  int64_t position_of(int64_t rank) const;
  std::vector<int64_t> coordinates_of(int64_t rank) const { return grid_.coordinates(position_of(rank)); }

  /// The groups along the joined axes: lists of ranks that differ only there, the innermost axis running fastest.
  /// Groups are in the order of their first members' positions. No axes: every rank alone.
  std::vector<std::vector<int64_t>> groups(const AxisList& axes) const;
  std::vector<int64_t> group_of(int64_t rank, const AxisList& axes) const;
  /// What such groups are called: "tp+cp", or "self" without axes.
  std::string group_name(const AxisList& axes) const;

  /// The ranks whose coordinates on some axes are the given ones, as a mesh of the other axes.
  Mesh sub_mesh(std::span<const std::pair<size_t, int64_t>> fixed) const;
  /// The sub-mesh of `axes` that holds the rank.
  Mesh sub_mesh_around(int64_t rank, const AxisList& axes) const;

  bool operator==(const Mesh& other) const { return grid_ == other.grid_ && ranks_ == other.ranks_; }

 private:
  Mesh() = default;

  AxisGrid grid_;
  std::vector<int64_t> ranks_;
  std::vector<std::pair<int64_t, int64_t>> positions_;  ///< (rank, position) by rank
};

/// tp, cp, dp, pp: what talks most is closest together, and pipeline stages lie across nodes.
std::vector<std::string> default_axis_order();

/// The mesh as experts see it: `ep` neighbours among the joined cp and dp axes, with `over_tp` among tp, cp and dp,
/// share one copy of the experts. These axes become `ep`, in the innermost one's place, and `edp` (the copies), in the
/// outermost one's. Other axes stay. The ranks are the same, in another order where the joined axes are not neighbours.
Result<Mesh> expert_view(const Mesh& mesh, int64_t ep, bool over_tp = false);

}  // namespace weft
