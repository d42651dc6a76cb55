#pragma once

#include <cstdint>
#include <map>
#include <memory>

#include "weft/base/result.h"
#include "weft/comm/world.h"
#include "weft/mesh/mesh.h"

namespace weft {

/// A mesh as one of its ranks communicates on it: its groups along axes, each made once. A value; copies are the same.
class MeshGroups {
 public:
  /// The rank must be in the mesh, and the world must have all of the mesh's ranks.
  static Result<MeshGroups> create(const World& world, const Mesh& mesh);

  const Mesh& mesh() const { return state_->mesh; }
  /// In the world.
  int64_t rank() const { return state_->world.rank(); }
  /// In the mesh.
  int64_t position() const { return state_->position; }

  /// This rank's group along the joined axes. It is made when it is first asked for, so all of the group's ranks ask
  /// for their common groups in the same order.
  Group along(const AxisList& axes) const;
  /// Bytes of all operations in these groups so far.
  Traffic traffic() const;
  /// Ends the use of all groups on this rank.
  void close() const;

 private:
  struct State {
    World world;
    Mesh mesh;
    int64_t position = 0;
    std::map<AxisList, Group> groups;  ///< by axes, ascending
  };
  explicit MeshGroups(std::shared_ptr<State> state) : state_(std::move(state)) {}

  std::shared_ptr<State> state_;
};

}  // namespace weft
