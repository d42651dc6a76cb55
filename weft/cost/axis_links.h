#pragma once

#include <vector>

#include "weft/cost/group_link.h"
#include "weft/mesh/mesh.h"
#include "weft/mesh/step.h"

namespace weft {

/// A mesh on a cluster, and the links that groups along its axes have, for every set of axes.
class AxisLinks {
 public:
  static constexpr size_t kMostAxes = 6;

  /// Fails where the mesh is not the world: as many ranks as the cluster has devices.
  static Result<AxisLinks> create(const std::vector<Axis>& axes, const Cluster& cluster);

  /// Of one axis, whose groups have such a link.
  static AxisLinks of_one(const Axis& axis, const GroupLink& link);

  const AxisGrid& grid() const { return grid_; }
  size_t num_axes() const { return grid_.num_axes(); }
  /// Of the groups along joined axes; bit a of the mask is axis a. No axes: a group of one.
  const GroupLink& along(unsigned mask) const { return links_[mask]; }
  int64_t num_ranks(unsigned mask) const;

  /// How long a step over such groups takes. `local_bytes` is what a rank has of the tensor where more of it is held:
  /// after a gather, before every other step.
  double step_ms(StepKind kind, unsigned mask, double local_bytes) const;

 private:
  AxisGrid grid_;
  std::vector<GroupLink> links_;
};

}  // namespace weft
