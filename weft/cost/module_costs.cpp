#include "weft/cost/module_costs.h"

#include <algorithm>

#include "weft/meaning/copied_weights.h"
#include "weft/mesh/head_share.h"
#include "weft/program/adapter_ops.h"

namespace weft {
namespace {

void count_copies(const Block& block, const BlockSetting& setting, BlockCost& cost) {
  OpShare share = setting.share();
  share.tp_rank = 0;
  std::vector<LocalWeight> weights;
  for (const Op& op : block.ops) {
    if (has_gradient(block, op)) list_weights(op, share, weights);
    // Bounds ask for degrees beyond an encoder's heads, too, of which no plan is made.
    if (const auto* a = std::get_if<Attention>(&op.shape))
      cost.key_sharers =
          share_of_heads({a->heads, a->kv_heads, a->head_dim}, std::min(setting.tp, a->heads), 0).sharers;
  }
  for (const LocalWeight& weight : weights) {
    (weight.is_expert && setting.ep > 1 ? cost.copied_of_experts : cost.copied) +=
        summed_over_tp(weight, setting.sequence_parallel);
    cost.copied_keys += weight.same_keys;
  }
}

BlockCost price_block(const Module& module, const Block& block, const BlockSetting& setting, const BlockTimes& times,
                      const Segments& segments) {
  BlockCost cost{.time = times.time_of(module, block, setting, segments),
                 .memory = times.memory_of(module, block, setting, segments),
                 .parameters = local_parameters(block, setting)};
  for (const Op& op : block.ops) {
    const LocalParameters own = local_parameters(op, setting.share());
    if (own.total() > 0) ++cost.num_weights;
    if (!has_gradient(block, op)) continue;
    cost.gradients += own;
    cost.largest_weight = std::max(cost.largest_weight, own.total());
  }
  if (setting.tp > 1) count_copies(block, setting, cost);
  return cost;
}

/// What a module of `segments` passes on, from layer to layer and behind its exit.
void set_bytes(const Module& module, const ModulePlan& m, const Segments& segments, ModuleCosts& costs) {
  const double rows = num_tokens(segments) / static_cast<double>(m.cp) / static_cast<double>(m.tp);
  const double bytes = num_bytes(costs.setting.precision);
  costs.boundary_bytes = rows * static_cast<double>(module.width) * bytes;
  costs.output_bytes = rows * module.output_rows.value() * static_cast<double>(module.output_width) * bytes;
}

}  // namespace

GroupLink pipeline_link(const Cluster& cluster, const ModulePlan& module, const ModulePlacements& placements) {
  if (module.pp == 1) return {};
  GroupPlacement placement = placements.next_stage;
  placement.num_ranks = 2;
  if (placement.link == LinkKind::kBetweenNodes) {
    // Every rank of the node may be sending.
    placement.most_ranks_per_node = 1;
    placement.groups_per_node = cluster.devices_per_node;
  }
  return link_of(cluster, placement);
}

ModuleCosts price_module(const Plan& plan, const ModulePlan& m, const ModulePlacements& placements,
                         const BlockTimes& times, const Segments& segments) {
  ModuleCosts costs = price_blocks(plan, m, setting_of(plan, m, placements), times, segments);
  set_links(plan.cluster, m, placements, costs);
  return costs;
}

ModuleCosts price_blocks(const Plan& plan, const ModulePlan& m, const BlockSetting& setting, const BlockTimes& times,
                         const Segments& segments) {
  const Module& module = *plan.model.find(m.kind);
  ModuleCosts costs{.setting = setting};
  costs.entry = price_block(module, module.entry, costs.setting, times, segments);
  for (const Block& kind : module.distinct_layers)
    costs.distinct_layers.push_back(price_block(module, kind, costs.setting, times, segments));
  costs.exit = price_block(module, module.exit, costs.setting, times, segments);
  if (m.is_encoder()) costs.output = output_time(plan.cluster, module, costs.setting, segments);
  for (const Op& op : module.entry.ops) {
    if (is_divided_table(op)) costs.table_elements += local_parameters(op, costs.setting.share()).dense;
  }
  set_bytes(module, m, segments, costs);
  costs.output_memory_bytes = num_tokens(segments) / static_cast<double>(m.cp) /
                              static_cast<double>(costs.setting.row_share()) * module.output_rows.value() *
                              static_cast<double>(module.output_width) * num_bytes(costs.setting.precision);
  return costs;
}

void set_links(const Cluster& cluster, const ModulePlan& module, const ModulePlacements& placements,
               ModuleCosts& costs) {
  if (placements.gradients.num_ranks > 1) costs.gradient_link = link_of(cluster, placements.gradients);
  if (placements.expert_gradients.num_ranks > 1)
    costs.expert_gradient_link = link_of(cluster, placements.expert_gradients);
  costs.pipeline_link = pipeline_link(cluster, module, placements);
}

void price_load(const Plan& plan, const ModulePlan& m, const BlockTimes& times, const Segments& segments,
                ModuleCosts& costs) {
  const Module& module = *plan.model.find(m.kind);
  costs.entry.time = times.time_of(module, module.entry, costs.setting, segments);
  for (size_t i = 0; i < module.distinct_layers.size(); ++i)
    costs.distinct_layers[i].time = times.time_of(module, module.distinct_layers[i], costs.setting, segments);
  costs.exit.time = times.time_of(module, module.exit, costs.setting, segments);
  if (m.is_encoder()) costs.output = output_time(plan.cluster, module, costs.setting, segments);
  set_bytes(module, m, segments, costs);
}

}  // namespace weft
