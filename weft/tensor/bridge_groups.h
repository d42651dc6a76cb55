#pragma once

#include <memory>
#include <optional>

#include "weft/tensor/mesh_groups.h"

namespace weft {

/// Two meshes with a bridge between them, as a rank of one or both communicates there. A value; copies are the same.
class BridgeGroups {
 public:
  /// Every rank of either mesh does this alike; the world must have them all.
  static Result<BridgeGroups> create(const World& world, const Mesh& from, const Mesh& to);

  const Mesh& from_mesh() const { return state_->from_mesh; }
  const Mesh& to_mesh() const { return state_->to_mesh; }
  /// In the world.
  int64_t rank() const { return state_->rank; }
  /// This rank on either mesh; nothing where it is not in it.
  const std::optional<MeshGroups>& from() const { return state_->from; }
  const std::optional<MeshGroups>& to() const { return state_->to; }
  /// All ranks of both meshes. Each direction has its own, so that a rank need not send rows and gradients in the order
  /// in which another, with a schedule of its own, expects them.
  const Group& forward_group() const { return state_->forward; }
  const Group& backward_group() const { return state_->backward; }

  /// Bytes of all operations so far, messages and sums.
  Traffic traffic() const;
  /// Ends the use of all groups on this rank.
  void close() const;

 private:
  struct State {
    Mesh from_mesh;
    Mesh to_mesh;
    int64_t rank;
    Group forward;
    Group backward;
    std::optional<MeshGroups> from;
    std::optional<MeshGroups> to;
  };
  explicit BridgeGroups(std::shared_ptr<State> state) : state_(std::move(state)) {}

  std::shared_ptr<State> state_;
};

}  // namespace weft
