#include "weft/cost/stage_cost.h"

#include <algorithm>

#include "weft/base/as_double.h"
#include "weft/cost/collective_time.h"
#include "weft/meaning/block_exchanges.h"
#include "weft/meaning/divided_rows.h"
#include "weft/meaning/expert_ranks.h"
#include "weft/meaning/stage_flow.h"
#include "weft/meaning/stage_parts.h"
#include "weft/meaning/weight_copies.h"
#include "weft/meaning/zero_rules.h"
#include "weft/program/name_weights.h"

namespace weft {
namespace {

/// Adds up one module's blocks in one stage.
class PartPricer {
 public:
  PartPricer(const Plan& plan, const StagePart& part, const ModuleCosts& costs, const TiedTable& table,
             StageCost& stage)
      : plan_(plan),
        part_(part),
        module_(plan.modules[static_cast<size_t>(part.module)]),
        spec_(*plan.model.find(module_.kind)),
        costs_(costs),
        table_(table),
        splits_(has_split_backward(plan, module_)),
        scatters_(rules_of_weights(module_).scatters_gradients),
        scatters_experts_(rules_of_experts(module_).scatters_gradients),
        copies_before_ms_(stage.last_copies_ms),
        trainable_(plan),
        backward_(trainable_.backward_of(module_.kind)),
        zero_(plan.overlap_dp ? plan.cluster.efficiency.overlap : 0),
        stage_(stage) {}

  void add() {
    if (part_.has_entry) add_block(costs_.entry, 0, 1, BlockRecompute::kKeep, /*is_entry=*/true);
    int64_t layer = part_.first_layer;
    for (const RecomputeRun& run : part_.recompute) {
      add_layers(run.what, layer, run.blocks);
      layer += run.blocks;
    }
    add_layers(BlockRecompute::kKeep, layer, part_.first_layer + part_.num_layers - layer);
    if (part_.has_exit) add_block(costs_.exit, num_blocks(spec_) - 1, 1, module_.exit_recompute());
    add_state();
  }

 private:
  void add_layers(BlockRecompute what, int64_t first, int64_t count) {
    if (count <= 0) return;
    if (!trainable_.has_own_rules()) {
      // Equal layers are trained alike, but the backward ends at the first that is.
      const int64_t before = std::clamp<int64_t>(trainable_.first_trained(module_.kind) - 1 - first, 0, count);
      add_equal_layers(what, first, before);
      add_equal_layers(what, first + before, count - before);
      return;
    }
    for (int64_t layer = first; layer < first + count; ++layer)
      add_block(costs_.distinct_layers[spec_.layers[static_cast<size_t>(layer)]], layer + 1, 1, what);
  }

  void add_equal_layers(BlockRecompute what, int64_t first, int64_t count) {
    if (count <= 0) return;
    const auto begin = spec_.layers.begin() + first;
    for (size_t kind = 0; kind < costs_.distinct_layers.size(); ++kind) {
      if (costs_.distinct_layers.size() == 1) {
        add_block(costs_.distinct_layers[kind], first + 1, static_cast<double>(count), what);
        return;
      }
      const auto place = std::find(begin, begin + count, kind);
      if (place == begin + count) continue;
      add_block(costs_.distinct_layers[kind], place - spec_.layers.begin() + 1,
                static_cast<double>(std::count(place, begin + count, kind)), what);
    }
  }

  /// Of a block's weights, those that are trained.
  LocalParameters trained_of(const BlockCost& block, int64_t place, const BackwardNeeds& backward) const {
    if (!backward.weights) return {};
    if (!trainable_.has_own_rules()) return block.gradients;
    return trainable_.trained_parameters(module_.kind, place, share_of(module_));
  }

  void add_block(const BlockCost& block, int64_t place, double count, BlockRecompute what, bool is_entry = false) {
    const auto num_alike = static_cast<int64_t>(count);
    const BackwardNeeds backward = trainable_.has_rules() ? trainable_.passes_of(module_.kind, place) : backward_;
    const LocalParameters trained = trained_of(block, place, backward);
    elements_.all += num_alike * block.parameters;
    elements_.trained += num_alike * trained;
    if (backward.runs()) elements_.in_backward += num_alike * block.parameters;
    largest_block_ = std::max(largest_block_, block.parameters.total());
    elements_.num_weights += num_alike * block.num_weights;
    add_zero(block, trained, backward, is_entry, num_alike);
    forward_ += count * block.time.forward;
    workspace_ = std::max(workspace_, block.memory.workspace);
    if (!backward.runs()) return;
    if (backward.of_inputs(is_entry)) {
      backward_input_ += count * block.time.backward_input;
      if (splits_ || !backward.weights) backward_input_.tp_ms += count * block.time.hidden_input_tp_ms;
    } else if (is_entry && !module_.is_encoder() && entry_placing(plan_, trainable_).needs_gradient) {
      // The embedding's input is data, but gradients of its rows become whole.
      backward_input_.tp_ms += count * block.time.backward_input.tp_ms;
    }
    if (backward.weights) {
      // Products with a weight that is not trained have no gradient of it: about as much less as there are elements.
      const double share =
          trainable_.has_own_rules() ? as_double(trained.total()) / as_double(block.gradients.total()) : 1;
      backward_weight_ += count * share * block.time.backward_weight;
      if (splits_) backward_weight_.tp_ms += count * share * block.time.hidden_weight_tp_ms;
      largest_weight_ = std::max(largest_weight_, block.largest_weight);
      if (module_.tp > 1) add_copies(block, count * share);
    }
    double saved = block.memory.saved;
    if (what == BlockRecompute::kAttention || what == BlockRecompute::kLogits) {
      stage_.recompute += count * block.time.attention;
      saved = block.memory.saved_selective;
      workspace_ = std::max(workspace_, block.memory.workspace + block.memory.some_logits);
    } else if (what == BlockRecompute::kFull) {
      stage_.recompute += count * block.time.forward;
      saved = block.memory.saved_full;
      // The block's own activations are there again while its backward runs.
      workspace_ = std::max(workspace_, block.memory.workspace + block.memory.saved);
    }
    activations_ += count * saved;
    largest_saved_ = std::max(largest_saved_, saved);
    if (backward.weights) stage_.deferred_bytes += count * std::max(0.0, block.memory.deferred - saved);
  }

  /// Ranks of tensor parallelism sum gradients of what all of them have before others see these.
  void add_copies(const BlockCost& block, double count) {
    const double bytes = num_bytes(plan_.precision.reduce);
    double ms = 0;
    if (block.copied > 0) ms += all_reduce_ms(costs_.setting.tp_link, as_double(block.copied) * bytes);
    if (block.copied_keys > 0) {
      GroupLink sharers = costs_.setting.tp_link;
      sharers.num_ranks = block.key_sharers;
      sharers.ranks_per_node = std::min(sharers.ranks_per_node, sharers.num_ranks);
      sharers.num_nodes = std::min(sharers.num_nodes, sharers.num_ranks);
      ms += all_reduce_ms(sharers, as_double(block.copied_keys) * bytes);
    }
    (scatters_ ? stage_.copies_ms : stage_.last_copies_ms) += count * ms;
    if (block.copied_of_experts == 0) return;
    (scatters_experts_ ? stage_.copies_ms : stage_.last_copies_ms) +=
        count * all_reduce_ms(costs_.setting.tp_link, as_double(block.copied_of_experts) * bytes);
  }

  void add_zero(const BlockCost& block, const LocalParameters& trained, const BackwardNeeds& backward, bool is_entry,
                int64_t num_alike) {
    if (module_.zero < 2) return;
    const ZeroTraffic traffic = zero_traffic(plan_, module_, costs_,
                                             {.all = block.parameters,
                                              .trained = trained,
                                              .in_backward = backward.runs() ? block.parameters : LocalParameters{},
                                              .num_weights = block.num_weights});
    double backward_ms = 0;
    if (backward.of_inputs(is_entry)) backward_ms += block.time.backward_input.total_ms();
    if (backward.weights) backward_ms += block.time.backward_weight.total_ms();
    zero_.add(traffic, block.time.forward.total_ms(), backward_ms, backward.runs(), num_alike);
    if (costs_.gradient_link.num_nodes > 1)
      stage_.zero_between_nodes_ms += static_cast<double>(num_alike) * traffic.total_ms();
  }

  void add_state() {
    stage_.forward += forward_;
    stage_.backward_input += backward_input_;
    stage_.backward_weight += backward_weight_;
    stage_.workspace_bytes = std::max(stage_.workspace_bytes, workspace_);
    if (has_copy_of_table()) {
      const LocalParameters table{.dense = costs_.table_elements};
      const bool is_trained = trainable_.trains_table();
      elements_.all += table;
      elements_.in_backward += table;
      if (is_trained) elements_.trained += table;
      if (module_.zero >= 2) {
        // The copy belongs to the head's block, which comes last: its values run beside nothing more than the head's.
        zero_.add(zero_traffic(plan_, module_, costs_,
                               {.all = table, .trained = is_trained ? table : LocalParameters{}, .in_backward = table}),
                  0, 0, true, 1);
      }
      largest_block_ = std::max(largest_block_, costs_.table_elements);
      largest_weight_ = std::max(largest_weight_, trainable_.trains_table() ? costs_.table_elements : 0);
    }
    const StateCost state = price_state(plan_, module_, costs_, elements_,
                                        {.forward_ms = forward_.total_ms(),
                                         .backward_ms = backward_input_.total_ms() + backward_weight_.total_ms(),
                                         .largest_block_elements = static_cast<double>(largest_block_),
                                         .largest_weight_elements = static_cast<double>(largest_weight_)});
    stage_.state += state.memory;
    // Modules of one stage share its buckets, and one block runs at a time.
    stage_.flight_bytes = std::max(stage_.flight_bytes, state.flight_bytes);
    stage_.passing_bytes = std::max(stage_.passing_bytes, state.passing_bytes + offloaded_on_their_way());
    stage_.zero_forward_ms += zero_.forward_ms();
    stage_.zero_backward_ms += zero_.backward_ms();
    stage_.reduce_ms += state.reduce_ms + stage_.last_copies_ms - copies_before_ms_;
    stage_.update_ms += state.update_ms + own_step_ms();
    add_tied_reduction();
    add_activations();
  }

  /// What a rank's step has besides, once: with the llm, or with an encoder that has ranks of its own.
  double own_step_ms() const {
    const bool is_first = !module_.is_encoder() || module_.placement == ModulePlacement::kDisjoint;
    return is_first ? plan_.cluster.measured.step_ms / as_double(module_.vpp) : 0;
  }

  bool has_copy_of_table() const { return !module_.is_encoder() && table_.is_copied && part_.has_exit; }

  /// First and last stage add up their gradients of a table that both use: each rank those that it owns.
  void add_tied_reduction() {
    const bool is_end = part_.has_entry || part_.has_exit;
    if (module_.is_encoder() || !table_.is_summed_over_ranks || !is_end || !trainable_.trains_table()) return;
    stage_.reduce_ms +=
        all_reduce_ms(costs_.pipeline_link, owned_gradient_bytes(plan_, module_, costs_.table_elements));
  }

  void add_activations() {
    const double moved = activations_ * plan_.offload.activations;
    stage_.activation_bytes += activations_ - moved;
    if (moved == 0) return;
    const double overlap = plan_.cluster.efficiency.overlap;
    const double host_ms = moved / (plan_.cluster.host.bandwidth_gb_per_s * 1e6);
    stage_.offload_forward_ms += std::max(0.0, host_ms - overlap * forward_.total_ms());
    stage_.offload_backward_ms +=
        std::max(0.0, host_ms - overlap * (backward_input_.total_ms() + backward_weight_.total_ms()));
  }

  /// They lie on both sides.
  double offloaded_on_their_way() const { return 2 * largest_saved_ * plan_.offload.activations; }

  const Plan& plan_;
  const StagePart& part_;
  const ModulePlan& module_;
  const Module& spec_;
  const ModuleCosts& costs_;
  TiedTable table_;
  bool splits_;              ///< weight gradients run apart from input gradients
  bool scatters_;            ///< gradients, in every microbatch
  bool scatters_experts_;    ///< those of experts that ranks share out
  double copies_before_ms_;  ///< of the stage's other parts
  Trainable trainable_;
  BackwardNeeds backward_;  ///< of some block
  ZeroExposure zero_;
  StageCost& stage_;
  StateElements elements_{.num_weights = 0};
  int64_t largest_block_ = 0;
  int64_t largest_weight_ = 0;
  double largest_saved_ = 0;
  PassTime forward_, backward_input_, backward_weight_;
  double activations_ = 0;
  double workspace_ = 0;
};

/// What passes from each stage to the next: the llm's rows once it has begun, with what later layers are to add to
/// them, else what inline encoders have made.
void add_transfers(const Plan& plan, const std::vector<StagePart>& parts, const ModuleCostsOf& modules,
                   std::vector<StageCost>& stages) {
  const size_t llm = plan.modules.size() - 1;
  int32_t llm_begin = 0;
  for (const StagePart& part : parts) {
    if (part.has_entry && part.module == static_cast<int32_t>(llm)) llm_begin = part.stage;
  }
  for (size_t m = 0; m < plan.modules.size(); ++m) {
    const ModulePlan& module = plan.modules[m];
    const Module& spec = *plan.model.find(module.kind);
    if (!module.is_in_pipeline() && spec.output_parts == 1) continue;
    int32_t begin = 0, end = 0;
    for (const StagePart& part : parts) {
      if (part.has_entry && part.module == static_cast<int32_t>(m)) begin = part.stage;
      if (part.has_exit && part.module == static_cast<int32_t>(m)) end = part.stage;
    }
    for (int32_t stage = 0; stage + 1 < static_cast<int32_t>(stages.size()); ++stage) {
      StageCost& cost = stages[static_cast<size_t>(stage)];
      if (module.is_encoder() && stage >= llm_begin) {
        if (spec.output_parts > 1)
          price_later_parts(plan, module, modules, num_later_parts(spec, layers_behind(parts, llm, stage)), cost);
      } else if (module.is_in_pipeline() && stage >= begin && stage < end) {
        // Without branches it makes no difference how many layers are behind.
        const int64_t behind = spec.output_parts > 1 ? layers_behind(parts, m, stage) : 0;
        price_transfer(module, *modules[m], bytes_between(spec, *modules[m], behind), cost);
      } else if (module.is_in_pipeline() && module.is_encoder() && stage >= end) {
        price_transfer(module, *modules[m], modules[m]->output_bytes, cost);
      }
    }
  }
}

}  // namespace

double action_ms(const Plan& plan) {
  if (const auto& measured = plan.cluster.measured.action_ms) return *measured;
  return plan.llm().pp > 1 ? plan.cluster.efficiency.action_us * 1e-3 : 0;
}

void price_part(const Plan& plan, const StagePart& part, const ModuleCosts& costs, const TiedTable& table,
                StageCost& stage) {
  PartPricer(plan, part, costs, table, stage).add();
}

void add_part_cost(const StageCost& part, StageCost& stage) {
  stage.forward += part.forward;
  stage.backward_input += part.backward_input;
  stage.backward_weight += part.backward_weight;
  stage.recompute += part.recompute;
  stage.zero_forward_ms += part.zero_forward_ms;
  stage.zero_backward_ms += part.zero_backward_ms;
  stage.zero_between_nodes_ms += part.zero_between_nodes_ms;
  stage.offload_forward_ms += part.offload_forward_ms;
  stage.offload_backward_ms += part.offload_backward_ms;
  stage.copies_ms += part.copies_ms;
  stage.reduce_ms += part.reduce_ms;
  stage.last_copies_ms += part.last_copies_ms;
  stage.update_ms += part.update_ms;
  stage.state += part.state;
  stage.activation_bytes += part.activation_bytes;
  stage.deferred_bytes += part.deferred_bytes;
  // One action runs at a time, and modules of one stage share its buckets.
  stage.workspace_bytes = std::max(stage.workspace_bytes, part.workspace_bytes);
  stage.flight_bytes = std::max(stage.flight_bytes, part.flight_bytes);
  stage.passing_bytes = std::max(stage.passing_bytes, part.passing_bytes);
}

double bytes_between(const Module& module, const ModuleCosts& costs, int64_t layers_behind) {
  return costs.boundary_bytes * as_double(1 + num_branches(module, layers_behind));
}

void price_later_parts(const Plan& plan, const ModulePlan& encoder, const ModuleCostsOf& modules, int64_t num_parts,
                       StageCost& stage) {
  const ModuleCosts& llm = *modules.back();
  double bytes = llm.boundary_bytes * llm.media_rows_per_token[static_cast<size_t>(encoder.kind)];
  if (encoder.is_in_pipeline()) {
    // It has the llm's degrees, and this microbatch's own rows.
    const auto index = static_cast<size_t>(&encoder - plan.modules.data());
    bytes = modules[index]->output_bytes / as_double(plan.model.find(encoder.kind)->output_parts);
  }
  price_transfer(plan.llm(), llm, as_double(num_parts) * bytes, stage);
}

void price_output(const Plan& plan, const ModulePlan& encoder, const ModuleCosts& costs, StageCost& stage) {
  stage.forward += costs.output.forward;
  if (Trainable(plan).gives_gradients(encoder)) stage.backward_input += costs.output.backward_input;
}

void price_transfer(const ModulePlan& module, const ModuleCosts& costs, double bytes, StageCost& stage) {
  if (bytes == 0) return;
  stage.transfer_busy_ms += send_busy_ms(costs.pipeline_link, bytes);
  stage.transfer_ms = std::max(stage.transfer_ms, send_latency_ms(costs.pipeline_link));
  // Without sequence parallelism every rank needs all rows; they travel in parts and are joined at the other end.
  if (repeats_rows(module))
    stage.transfer_ms += all_gather_ms(costs.setting.tp_link, bytes * static_cast<double>(module.tp));
  stage.transfer_bytes += 2 * bytes;
}

void share_cards(const ModuleCosts& llm, StageCost& stage) {
  if (llm.pipeline_link.num_nodes <= 1 || stage.zero_between_nodes_ms == 0) return;
  const double passes_ms = stage.forward_ms() + stage.backward_input_ms() + stage.backward_weight_ms();
  stage.transfer_busy_ms *= 1 + std::min(1.0, stage.zero_between_nodes_ms / passes_ms);
}

void price_encoder(const Plan& plan, int32_t module, const ModuleCosts& costs, std::vector<StageCost>& stages) {
  const std::vector<StagePart> parts = list_encoder_parts(plan, static_cast<size_t>(module));
  stages.assign(parts.size(), StageCost{});
  for (const StagePart& part : parts) {
    StageCost& cost = stages[static_cast<size_t>(part.stage)];
    PartPricer(plan, part, costs, TiedTable{}, cost).add();
    cost.action_ms = plan.cluster.measured.action_ms.value_or(0);
    const ModulePlan& encoder = plan.modules[static_cast<size_t>(module)];
    if (part.has_exit) {
      price_output(plan, encoder, costs, cost);
    } else {
      price_transfer(encoder, costs,
                     bytes_between(*plan.model.find(encoder.kind), costs, part.first_layer + part.num_layers), cost);
    }
  }
}

void price_stages(const Plan& plan, const std::vector<StagePart>& parts, const ModuleCostsOf& modules,
                  std::vector<StageCost>& stages) {
  stages.assign(static_cast<size_t>(num_stages(plan)), StageCost{});
  const TiedTable table = tied_table(plan, parts);
  for (const StagePart& part : parts) {
    StageCost& stage = stages[static_cast<size_t>(part.stage)];
    price_part(plan, part, *modules[static_cast<size_t>(part.module)], table, stage);
    if (!part.has_entry || plan.modules[static_cast<size_t>(part.module)].is_encoder()) continue;
    for (size_t m = 0; m < plan.modules.size(); ++m) {
      const ModulePlan& module = plan.modules[m];
      if (module.is_encoder() && module.is_in_pipeline()) price_output(plan, module, *modules[m], stage);
    }
  }
  for (StageCost& stage : stages) stage.action_ms = action_ms(plan);
  if (plan.llm().pp == 1) return;
  add_transfers(plan, parts, modules, stages);
  const ModuleCosts& llm = *modules[static_cast<size_t>(&plan.llm() - plan.modules.data())];
  for (StageCost& stage : stages) share_cards(llm, stage);
}

}  // namespace weft
