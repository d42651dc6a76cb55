#pragma once

#include <memory>

#include <ATen/core/Tensor.h>

#include "weft/mesh/transition.h"
#include "weft/tensor/mesh_groups.h"

namespace weft {

/// The way of a tensor from one layout to another on one mesh, and of its gradient back, as one rank goes it: the
/// transition that mesh/ plans, bound to groups. Making one plans and may make groups, so that what is used often is
/// made once. A value; copies are the same.
class Redistribution {
 public:
  /// The layouts must be of one shape and on the mesh's axes. Every rank of the mesh does this alike.
  Redistribution(const MeshGroups& groups, const Layout& from, const Layout& to);

  const Layout& from() const;
  const Layout& to() const;
  const Transition& transition() const;

  /// This rank's part of the tensor in `to`, given its part in `from`. Part of the autograd graph: the gradient of the
  /// result, which has the layout to.gradient(), comes back as one with from.gradient(). Every rank of the mesh calls
  /// it, and if its tensor needs a gradient, everyone's does and everyone runs backward through it. Where nothing
  /// changes, the result is `x` or shares its memory.
  at::Tensor operator()(const at::Tensor& x) const;

 private:
  struct State;
  friend struct RedistributeFunction;
  explicit Redistribution(std::shared_ptr<const State> state) : state_(std::move(state)) {}

  std::shared_ptr<const State> state_;
};

/// The same in one go.
at::Tensor redistribute(const at::Tensor& x, const Layout& from, const Layout& to, const MeshGroups& groups);

}  // namespace weft
