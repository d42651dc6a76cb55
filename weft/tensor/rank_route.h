#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

#include "weft/mesh/bridge.h"
#include "weft/tensor/mesh_groups.h"
#include "weft/tensor/rank_steps.h"

namespace weft {

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

}  // namespace weft
