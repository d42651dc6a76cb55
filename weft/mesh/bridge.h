#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "weft/mesh/mesh.h"
#include "weft/mesh/step.h"
#include "weft/mesh/topology.h"

namespace weft {

/// A block of a tensor that one rank sends to another.
struct Message {
  int64_t from_rank = 0;
  int64_t to_rank = 0;
  Box box;

  bool operator==(const Message&) const = default;
};

/// A block of a tensor that a rank needs and already has.
struct KeptBlock {
  int64_t rank = 0;
  Box box;

  bool operator==(const KeptBlock&) const = default;
};

/// How a tensor goes from a layout on one mesh to a layout on another, whose ranks may be the same, others or some of
/// both. Every needed element comes exactly once, from a rank that has it, unless the receiver has it itself. On a
/// partial axis of the target only the first rank needs anything; what a rank does not need is zero in its block.
struct Route {
  std::vector<Step> reduce;  ///< first, on the source's mesh: sums a partial source up
  Layout source;             ///< after that
  Layout target;
  std::vector<Message> messages;  ///< by sender, then receiver; at most one for a pair
  std::vector<KeptBlock> kept;    ///< by rank; at most one for a rank
};

/// A route and the one that the gradient takes back: from the gradient's layout of the target to that of the source, so
/// copies of the target with partial gradients are summed up and other copies are taken once.
struct Bridge {
  Route forward;
  Route adjoint;
};

/// The layouts must be of one shape, each on its mesh's grid, here and below. Where several ranks have what is needed,
/// one on the receiver's node sends it if a topology is given, and the load is spread evenly among equals. The topology
/// must know all ranks. The result depends on the arguments alone.
Bridge plan_bridge(const Mesh& from_mesh, const Layout& from, const Mesh& to_mesh, const Layout& to,
                   const Topology* topology = nullptr);
Route plan_route(const Mesh& from_mesh, const Layout& from, const Mesh& to_mesh, const Layout& to,
                 const Topology* topology = nullptr);

/// What the rank at a position of a route's target must have; nothing where it holds zeros of a sum.
std::optional<Box> needed_box(const Layout& target, int64_t position);

/// What each rank sends and receives by messages, in elements; ranks without messages are left out.
std::map<int64_t, Traffic> message_traffic(const Route& route);

}  // namespace weft
