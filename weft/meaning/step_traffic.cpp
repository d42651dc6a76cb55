#include "weft/meaning/step_traffic.h"

#include <numeric>

#include "weft/meaning/bridge_traffic.h"
#include "weft/meaning/group_names.h"
#include "weft/meaning/routers.h"
#include "weft/meaning/step_calls.h"

namespace weft {
namespace {

constexpr int64_t kNumberBytes = 8;  // of counts and of sums in double precision

/// What all ranks know after a step: the norm of each module's gradients, the loss, and how loaded experts were.
void add_sums(const Plan& plan, int64_t rank, CallList& calls) {
  std::vector<int64_t> ranks(static_cast<size_t>(plan.world_size));
  std::iota(ranks.begin(), ranks.end(), int64_t{0});
  const RankGroup world = named_group(group_names::kWorld, std::move(ranks), rank);
  const Routers routers = routers_of(plan);
  const int num_sums = routers.count() > 0 ? 3 : 2;
  for (int i = 0; i < num_sums; ++i) calls.all_reduce(world, i == 0 ? std::ssize(plan.model.modules) : 1, kNumberBytes);
  if (routers.count() > 0) calls.all_reduce(world, routers.count() * routers.num_experts + 1, kNumberBytes);
}

void add(const std::vector<GroupCall>& calls, TrafficList& list) {
  for (const GroupCall& call : calls) list.of(call.group, call.ranks).add(call.kind, {.calls = 1, .bytes = call.bytes});
}

}  // namespace

std::vector<GroupTraffic> step_traffic(const Plan& plan, const StepLoad& load, int64_t rank) {
  TrafficList list;
  for (const ActionCalls& action : step_calls(plan, load, rank)) add(action.calls, list);
  CallList besides;
  for (size_t module = 0; module < plan.modules.size(); ++module) {
    if (!plan.modules[module].is_in_pipeline()) add_bridge_traffic(plan, load, module, rank, besides);
  }
  add_sums(plan, rank, besides);
  add(besides.calls(), list);
  return traffic_since({}, list);
}

}  // namespace weft
