#include "weft/tensor/bridge_groups.h"

#include <algorithm>

namespace weft {
namespace {

std::vector<int64_t> joined_ranks(const Mesh& a, const Mesh& b) {
  std::vector<int64_t> ranks(a.ranks().begin(), a.ranks().end());
  ranks.insert(ranks.end(), b.ranks().begin(), b.ranks().end());
  std::sort(ranks.begin(), ranks.end());
  ranks.erase(std::unique(ranks.begin(), ranks.end()), ranks.end());
  return ranks;
}

}  // namespace

Result<BridgeGroups> BridgeGroups::create(const World& world, const Mesh& from, const Mesh& to) {
  World own = world;
  const std::vector<int64_t> ranks = joined_ranks(from, to);
  WEFT_TRY(Group forward, own.group("bridge", ranks));
  WEFT_TRY(Group backward, own.group("bridge back", ranks));
  auto state = std::make_shared<State>(State{.from_mesh = from,
                                             .to_mesh = to,
                                             .rank = world.rank(),
                                             .forward = std::move(forward),
                                             .backward = std::move(backward),
                                             .from = {},
                                             .to = {}});
  if (from.contains(world.rank())) state->from = *MeshGroups::create(world, from);
  if (to.contains(world.rank())) state->to = *MeshGroups::create(world, to);
  return BridgeGroups(std::move(state));
}

Traffic BridgeGroups::traffic() const {
  Traffic sum = state_->forward.traffic();
  sum += state_->backward.traffic();
  for (const auto* groups : {&state_->from, &state_->to}) {
    if (*groups) sum += (*groups)->traffic();
  }
  return sum;
}

void BridgeGroups::close() const {
  state_->forward.close();
  state_->backward.close();
  for (const auto* groups : {&state_->from, &state_->to}) {
    if (*groups) (*groups)->close();
  }
}

}  // namespace weft
