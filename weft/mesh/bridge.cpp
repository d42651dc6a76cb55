#include "weft/mesh/bridge.h"

#include <algorithm>
#include <optional>

#include "weft/base/check.h"
#include "weft/mesh/block_index.h"
#include "weft/mesh/sender_choice.h"
#include "weft/mesh/transition.h"

namespace weft {
namespace {

/// Partial axes on which there is something to sum.
AxisList summed_axes(const Layout& layout) {
  AxisList axes = layout.partial_axes();
  std::erase_if(axes, [&](size_t axis) { return layout.grid().size(axis) == 1; });
  return axes;
}

/// What a partial source may be reduced to: copies, or shards of one dim that has no given part sizes.
std::vector<Layout> reduced_layouts(const Layout& from) {
  const AxisList axes = summed_axes(from);
  if (axes.empty()) return {from};
  std::vector<PartSizes> given;
  for (size_t dim = 0; dim < from.num_dims(); ++dim) {
    if (!from.split(dim).is_balanced()) given.push_back({dim, from.split(dim).sizes()});
  }
  const auto with_state = [&](AxisState state) {
    std::vector<AxisState> states = from.states();
    for (const size_t axis : axes) states[axis] = state;
    return *Layout::create(from.grid(), from.shape(), std::move(states), given);
  };
  std::vector<Layout> layouts{with_state(AxisState::replicated())};
  for (size_t dim = 0; dim < from.num_dims(); ++dim) {
    if (from.split(dim).is_balanced()) layouts.push_back(with_state(AxisState::shard(dim)));
  }
  return layouts;
}

/// Elements that the busiest rank of the target's mesh lacks.
int64_t most_lacking(const Mesh& from_mesh, const Layout& source, const Mesh& to_mesh, const Layout& target) {
  int64_t most = 0;
  for (int64_t position = 0; position < to_mesh.num_ranks(); ++position) {
    const std::optional<Box> needed = needed_box(target, position);
    if (!needed) continue;
    int64_t lacking = num_elements(*needed);
    if (const std::optional<int64_t> own = from_mesh.find(to_mesh.rank_at(position)))
      lacking -= num_elements(intersection(*needed, source.box(*own)));
    most = std::max(most, lacking);
  }
  return most;
}

/// Reduces the source in the way that brings the busiest rank least, counting what it still lacks afterwards.
void reduce_source(Route& route, const Mesh& from_mesh, const Layout& from, const Mesh& to_mesh) {
  std::vector<Layout> candidates = reduced_layouts(from);
  if (candidates.size() == 1) {
    route.reduce = plan_steps(from, candidates[0]);
    route.source = std::move(candidates[0]);
    return;
  }
  std::optional<std::pair<int64_t, size_t>> least;
  for (Layout& candidate : candidates) {
    std::vector<Step> steps = plan_steps(from, candidate);
    const std::pair price(busiest_received(steps) + most_lacking(from_mesh, candidate, to_mesh, route.target),
                          steps.size());
    if (least && *least <= price) continue;
    least = price;
    route.reduce = std::move(steps);
    route.source = std::move(candidate);
  }
}

}  // namespace

std::optional<Box> needed_box(const Layout& target, int64_t position) {
  for (const size_t axis : target.partial_axes()) {
    if (target.grid().coordinate(position, axis) != 0) return std::nullopt;
  }
  return target.box(position);
}

Route plan_route(const Mesh& from_mesh, const Layout& from, const Mesh& to_mesh, const Layout& to,
                 const Topology* topology) {
  WEFT_CHECK(from.grid() == from_mesh.grid() && to.grid() == to_mesh.grid(), "a layout on another mesh's axes: {}, {}",
             from.text(), to.text());
  WEFT_CHECK(from.shape() == to.shape(), "a bridge from {} to {}", from.text(), to.text());
  Route route{.reduce = {}, .source = from, .target = to, .messages = {}, .kept = {}};
  reduce_source(route, from_mesh, from, to_mesh);

  const BlockIndex blocks(route.source);
  std::vector<Request> requests;
  for (int64_t position = 0; position < to_mesh.num_ranks(); ++position) {
    const std::optional<Box> needed = needed_box(to, position);
    if (!needed) continue;
    const int64_t rank = to_mesh.rank_at(position);
    const std::optional<int64_t> own = from_mesh.find(rank);
    const std::optional<int64_t> own_block = own ? blocks.at(*own) : std::nullopt;
    blocks.for_each_overlap(*needed, [&](int64_t block, Box part) {
      if (own_block == block) {
        route.kept.push_back({rank, std::move(part)});
      } else {
        requests.push_back({block, rank, std::move(part)});
      }
    });
  }
  route.messages = choose_senders(std::move(requests), blocks, from_mesh, topology);
  std::sort(route.kept.begin(), route.kept.end(),
            [](const KeptBlock& a, const KeptBlock& b) { return a.rank < b.rank; });
  return route;
}

Bridge plan_bridge(const Mesh& from_mesh, const Layout& from, const Mesh& to_mesh, const Layout& to,
                   const Topology* topology) {
  return {.forward = plan_route(from_mesh, from, to_mesh, to, topology),
          .adjoint = plan_route(to_mesh, to.gradient(), from_mesh, from.gradient(), topology)};
}

std::map<int64_t, Traffic> message_traffic(const Route& route) {
  std::map<int64_t, Traffic> traffic;
  for (const Message& message : route.messages) {
    const int64_t size = num_elements(message.box);
    traffic[message.from_rank].sent += size;
    traffic[message.to_rank].received += size;
  }
  return traffic;
}

}  // namespace weft
