#include "weft/tensor/mesh_groups.h"

#include <algorithm>

namespace weft {

Result<MeshGroups> MeshGroups::create(const World& world, const Mesh& mesh) {
  auto state = std::make_shared<State>(State{.world = world, .mesh = mesh, .position = 0, .groups = {}});
  // The group of no axes is this rank alone. Making it says whether world and mesh belong together.
  WEFT_TRY(const Group self, state->world.group(mesh, {}));
  state->groups.emplace(AxisList{}, self);
  state->position = mesh.position_of(world.rank());
  return MeshGroups(std::move(state));
}

Group MeshGroups::along(const AxisList& axes) const {
  AxisList sorted = axes;
  std::sort(sorted.begin(), sorted.end());
  const auto found = state_->groups.find(sorted);
  if (found != state_->groups.end()) return found->second;
  return state_->groups.emplace(sorted, *state_->world.group(mesh(), sorted)).first->second;
}

Traffic MeshGroups::traffic() const {
  Traffic sum;
  for (const auto& [axes, group] : state_->groups) sum += group.traffic();
  return sum;
}

void MeshGroups::close() const {
  for (auto& [axes, group] : state_->groups) group.close();
}

}  // namespace weft
