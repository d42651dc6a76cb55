#include "weft/tensor/tensor_bridge.h"

#include <fmt/format.h>

namespace weft {
namespace {

Bridge checked_plan(const BridgeGroups& groups, const Layout& from, const Layout& to, const Topology* topology) {
  WEFT_CHECK(from.grid() == groups.from_mesh().grid() && to.grid() == groups.to_mesh().grid(),
             "rank {}: a bridge from {} on the mesh {} to {} on the mesh {}, expected layouts on those meshes' axes",
             groups.rank(), from.text(), groups.from_mesh().grid().text(), to.text(), groups.to_mesh().grid().text());
  WEFT_CHECK(from.shape() == to.shape(), "rank {}: a bridge from {} to {}, expected one shape", groups.rank(),
             from.text(), to.text());
  return plan_bridge(groups.from_mesh(), from, groups.to_mesh(), to, topology);
}

}  // namespace

TensorBridge::TensorBridge(const BridgeGroups& groups, const Layout& from, const Layout& to, const Options& options)
    : plan_(checked_plan(groups, from, to, options.topology)),
      forward_(plan_.forward, groups.from(), groups.to(), groups.forward_group(),
               at::TensorOptions().dtype(options.type).device(options.device), "bridge of " + from.text()),
      backward_(plan_.adjoint, groups.to(), groups.from(), groups.backward_group(),
                at::TensorOptions().dtype(options.type).device(options.device),
                "bridge back of " + to.gradient().text()) {
  if (!data_type_of(options.type)) {
    throw TensorMisuse(fmt::format("rank {}, bridge of {}: tensors of {}, expected a type that groups can move",
                                   groups.rank(), from.text(), c10::toString(options.type)));
  }
}

}  // namespace weft
