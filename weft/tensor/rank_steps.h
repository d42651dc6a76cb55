#pragma once

#include <optional>
#include <span>
#include <vector>

#include <ATen/core/Tensor.h>

#include "weft/mesh/step.h"
#include "weft/tensor/local_tensor.h"
#include "weft/tensor/mesh_groups.h"

namespace weft {

/// Steps between layouts as one rank executes them on its tensor: each with its group, and with what goes to and comes
/// from every member of it. What steps mean is said in tests/support/mesh (SimulatedTensor).
class RankSteps {
 public:
  /// Makes the groups that are not there yet: every rank of the mesh does this alike.
  RankSteps(std::span<const Step> steps, const MeshGroups& groups);

  /// The rank's part of the tensor afterwards. It shares no memory with `x`, unless it is `x` itself. Outside
  /// autograd; `x` must fit the first step. `may_overwrite`: sums may be made in the memory of `x`.
  at::Tensor run(const at::Tensor& x, bool may_overwrite = false) const;

 private:
  struct RankStep {
    StepKind kind = StepKind::kIdentity;
    std::optional<Group> group;  ///< of a collective
    std::vector<int64_t> after_shape;
    Box own;                 ///< what a slice keeps of the tensor, or where a zero-pad puts it
    bool keeps_copy = true;  ///< in a zero-pad
    Blocks to_members;       ///< of the tensor
    Blocks from_members;     ///< of the result
  };

  static RankStep rank_step(const Step& step, const MeshGroups& groups);
  static at::Tensor communicate(const RankStep& step, const at::Tensor& x, bool may_overwrite);

  std::vector<RankStep> steps_;
};

}  // namespace weft
