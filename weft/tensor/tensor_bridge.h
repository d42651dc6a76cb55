#pragma once

#include <ATen/core/Tensor.h>

#include "weft/mesh/bridge.h"
#include "weft/tensor/bridge_groups.h"
#include "weft/tensor/rank_route.h"

namespace weft {

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
