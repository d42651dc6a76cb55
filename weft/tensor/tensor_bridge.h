#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

#include "weft/mesh/bridge.h"
#include "weft/tensor/mesh_groups.h"
#include "weft/tensor/rank_steps.h"

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

/// Rows on their way over a bridge. What they come from must stay as it is until they have been waited for; dropping it
/// before that abandons the messages.
class [[nodiscard]] BridgeTransfer {
 public:
  /// This rank's part on the other side; undefined where it is not in that mesh.
  at::Tensor wait();

 private:
  friend class RankRoute;

  /// A block that comes in memory of its own.
  struct Arrival {
    at::Tensor packed;
    at::Tensor block;  ///< of the result
  };

  at::Tensor result_;
  std::vector<at::Tensor> sent_;  ///< keeps memory alive
  std::vector<Arrival> arrivals_;
  std::vector<Work> works_;  ///< goes first
};

/// A route between meshes as one rank goes it: what it sends, receives and keeps.
class RankRoute {
 public:
  /// `from` and `to` are this rank on the route's meshes. `what` is for messages.
  RankRoute(const Route& route, const std::optional<MeshGroups>& from, const std::optional<MeshGroups>& to,
            const Group& group, at::TensorOptions options, std::string what);

  /// The tensor may be undefined where this rank holds no elements of it.
  BridgeTransfer start(const at::Tensor& x) const;

 private:
  struct RankMessage {
    int64_t peer = 0;  ///< in the group
    Box block;         ///< of this rank's tensor, before or after
    bool is_stretch = false;
  };

  void check(const at::Tensor& x) const;

  int64_t rank_;
  Group group_;
  at::TensorOptions options_;
  std::string what_;
  std::optional<RankSteps> reduce_;               ///< where this rank is in the source's mesh
  std::vector<int64_t> given_shape_;              ///< before the sums
  std::optional<std::vector<int64_t>> to_shape_;  ///< where this rank is in the target's mesh
  std::vector<RankMessage> sends_;
  std::vector<RankMessage> receives_;
  std::optional<std::pair<Box, Box>> kept_;  ///< of the tensor before, and where it is after
  bool keeps_all_ = false;                   ///< before and after are the same
  bool has_zeros_ = false;                   ///< instead of a block
};

/// A tensor's way from a layout on one mesh to a layout on another, and its gradient's way back: exactly the messages
/// that mesh/ plans, and the sums before them. Not part of any autograd graph: rows arrive detached, and the way back
/// is a call of its own. See docs/design/redistribute-and-bridge.md.
class TensorBridge {
 public:
  struct Options {
    at::ScalarType type = at::kFloat;  ///< of the tensor and its gradient, on all ranks
    at::Device device = at::kCPU;      ///< this rank's
    const Topology* topology = nullptr;
  };

  /// The layouts must be of one shape, each on its mesh. Every rank of either mesh does this alike.
  TensorBridge(const BridgeGroups& groups, const Layout& from, const Layout& to, const Options& options);

  const Bridge& plan() const { return plan_; }

  /// Every rank of either mesh calls this, also those without rows, with its part of the tensor: undefined where the
  /// rank is not in the source's mesh, and allowed to be where its part is empty. Returns its part in the target.
  /// Where a rank has exactly what it needs, that is the same memory.
  at::Tensor forward(const at::Tensor& x) const { return start_forward(x).wait(); }
  /// The same with the gradient of what forward returned: from the target's mesh to the source's.
  at::Tensor backward(const at::Tensor& gradient) const { return start_backward(gradient).wait(); }

  /// Sends, and returns before anything has arrived. (Sums, where there are any, are waited for.)
  BridgeTransfer start_forward(const at::Tensor& x) const { return forward_.start(x); }
  BridgeTransfer start_backward(const at::Tensor& gradient) const { return backward_.start(gradient); }

 private:
  Bridge plan_;
  RankRoute forward_;
  RankRoute backward_;
};

}  // namespace weft
