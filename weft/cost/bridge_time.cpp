#include "weft/cost/bridge_time.h"

#include <algorithm>

#include "weft/cost/collective_time.h"
#include "weft/meaning/macro_batch.h"
#include "weft/meaning/weight_copies.h"
#include "weft/meaning/zero_rules.h"

namespace weft {
namespace {

/// Whether ZeRO has the llm's ranks on several nodes communicate in every microbatch.
bool zero_leaves_node(const ModulePlan& llm, const ModuleCosts& costs) {
  const ZeroRules rules = rules_of_weights(llm);
  return (rules.scatters_gradients || rules.releases_values) && costs.gradient_link.num_nodes > 1;
}

/// How long a bridge and a transfer of the pipeline hold each other up where both leave the node.
double met_by_transfer_ms(const Plan& plan, const ModuleCosts& llm, const BridgeTime& bridge) {
  if (!bridge.leaves_node || plan.llm().pp == 1 || llm.pipeline_link.num_nodes <= 1) return 0;
  return std::min(bridge.busy_ms, send_busy_ms(llm.pipeline_link, llm.boundary_bytes));
}

}  // namespace

BridgeTime bridge_alone(const Plan& plan, const ModulePlan& encoder, const ModuleCosts& costs) {
  const ModulePlan& llm = plan.llm();
  const Cluster& cluster = plan.cluster;
  const double macro_per_microbatch =
      num_macro_batches(plan, encoder) / static_cast<double>(plan.schedule.microbatches);
  // What an llm data-parallel rank's microbatch needs, in all its tensor- and context-parallel ranks' parts.
  const double whole = costs.output_bytes * static_cast<double>(encoder.tp * encoder.cp) * macro_per_microbatch *
                       static_cast<double>(encoder.dp) / static_cast<double>(llm.dp);
  const double per_rank = whole / static_cast<double>(llm.cp * (llm.sequence_parallel ? llm.tp : 1));
  // Without rows nothing is sent.
  if (per_rank == 0) return {};
  const bool crosses =
      encoder.placement == ModulePlacement::kDisjoint ? cluster.nodes > 1 : cluster.nodes > 1 && llm.pp > 1;
  const GroupPlacement placement{.link = crosses ? LinkKind::kBetweenNodes : LinkKind::kWithinNode,
                                 .num_ranks = 2,
                                 .num_nodes = crosses ? 2 : 1,
                                 .most_ranks_per_node = 1,
                                 .fewest_ranks_per_node = 1,
                                 .groups_per_node = crosses ? cluster.devices_per_node : 0};
  const GroupLink link = link_of(cluster, placement);
  return {.busy_ms = send_busy_ms(link, per_rank), .latency_ms = send_latency_ms(link), .leaves_node = crosses};
}

double shared_bridge_ms(const Plan& plan, const ModuleCosts& llm, std::span<const BridgeTime> bridges, size_t index) {
  const BridgeTime& bridge = bridges[index];
  double ms = bridge.busy_ms + bridge.latency_ms;
  if (!bridge.leaves_node) return ms;
  ms += met_by_transfer_ms(plan, llm, bridge);
  if (zero_leaves_node(plan.llm(), llm)) ms += bridge.busy_ms;
  for (size_t other = 0; other < bridges.size(); ++other) {
    if (other != index && bridges[other].leaves_node) ms += std::min(bridge.busy_ms, bridges[other].busy_ms);
  }
  return ms;
}

double bridges_hold_up_ms(const Plan& plan, const ModuleCosts& llm, std::span<const BridgeTime> bridges) {
  double ms = 0;
  for (const BridgeTime& bridge : bridges) ms += met_by_transfer_ms(plan, llm, bridge);
  return ms;
}

void share_with_bridges(const Plan& plan, const std::vector<StagePart>& parts, const ModuleCosts& llm,
                        std::span<const BridgeTime> bridges, std::vector<StageCost>& stages) {
  const double ms = bridges_hold_up_ms(plan, llm, bridges);
  if (ms == 0) return;
  for (const StagePart& part : parts) {
    if (!part.has_entry || plan.modules[static_cast<size_t>(part.module)].is_encoder()) continue;
    StageCost& entry = stages[static_cast<size_t>(part.stage)];
    if (entry.transfer_busy_ms > 0) entry.transfer_busy_ms += ms;
  }
}

}  // namespace weft
