#include "weft/cost/stage_cost.h"

#include <algorithm>

#include "weft/cost/collective_time.h"
#include "weft/meaning/stage_buckets.h"

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
        backward_(backward_of(plan, module_.kind)),
        stage_(stage) {}

  void add() {
    if (part_.has_entry) add_block(costs_.entry, 1, Kept::kAll, /*makes_input_gradient=*/false);
    for (const auto& [kept, first, count] :
         {Run{Kept::kInput, part_.first_layer, part_.recompute.full},
          Run{Kept::kAllButAttention, part_.first_layer + part_.recompute.full, part_.recompute.selective},
          Run{Kept::kAll, part_.first_layer + part_.recompute.full + part_.recompute.selective,
              part_.num_layers - part_.recompute.full - part_.recompute.selective}}) {
      add_layers(kept, first, count);
    }
    if (part_.has_exit) add_block(costs_.exit, 1, Kept::kAll, true);
    add_state();
  }

 private:
  /// What stays of a block between forward and backward.
  enum class Kept { kAll, kAllButAttention, kInput };
  struct Run {
    Kept kept;
    int64_t first;
    int64_t count;
  };

  void add_layers(Kept kept, int64_t first, int64_t count) {
    if (count <= 0) return;
    if (costs_.kinds.size() == 1) {
      add_block(costs_.kinds.front(), static_cast<double>(count), kept, true);
      return;
    }
    for (int64_t layer = first; layer < first + count; ++layer)
      add_block(costs_.kinds[spec_.layers[static_cast<size_t>(layer)]], 1, kept, true);
  }

  void add_block(const BlockCost& block, double count, Kept kept, bool makes_input_gradient) {
    const auto copies = static_cast<int64_t>(count);
    elements_.dense += copies * block.parameters.dense;
    elements_.expert += copies * block.parameters.expert;
    largest_block_ = std::max(largest_block_, block.parameters.total());
    forward_ += count * block.time.forward;
    workspace_ = std::max(workspace_, block.memory.workspace);
    if (!backward_.runs()) return;
    if (backward_.inputs && makes_input_gradient) {
      backward_input_ += count * block.time.backward_input;
      if (splits_ || !backward_.weights) backward_input_.tp_ms += count * block.time.hidden_input_tp_ms;
    }
    if (backward_.weights) {
      backward_weight_ += count * block.time.backward_weight;
      if (splits_) backward_weight_.tp_ms += count * block.time.hidden_weight_tp_ms;
      largest_weight_ = std::max(largest_weight_, block.largest_weight);
    }
    double saved = block.memory.saved;
    if (kept == Kept::kAllButAttention) {
      stage_.recompute += count * block.time.attention;
      saved = block.memory.saved_selective;
    } else if (kept == Kept::kInput) {
      stage_.recompute += count * block.time.forward;
      saved = block.memory.saved_full;
      // The block's own activations are there again while its backward runs.
      workspace_ = std::max(workspace_, block.memory.workspace + block.memory.saved);
    }
    activations_ += count * saved;
    largest_saved_ = std::max(largest_saved_, saved);
    if (backward_.weights) stage_.deferred_bytes += count * std::max(0.0, block.memory.deferred - saved);
  }

  void add_state() {
    stage_.forward += forward_;
    stage_.backward_input += backward_input_;
    stage_.backward_weight += backward_weight_;
    stage_.workspace_bytes = std::max(stage_.workspace_bytes, workspace_);
    if (has_copy_of_table()) {
      elements_.dense += costs_.table_elements;
      largest_block_ = std::max(largest_block_, costs_.table_elements);
      largest_weight_ = std::max(largest_weight_, backward_.weights ? costs_.table_elements : 0);
    }
    const StateCost state = price_state(plan_, module_, costs_, elements_,
                                        {.forward_ms = forward_.total_ms(),
                                         .backward_ms = backward_input_.total_ms() + backward_weight_.total_ms(),
                                         .largest_block_elements = static_cast<double>(largest_block_),
                                         .largest_weight_elements = static_cast<double>(largest_weight_)});
    stage_.state += state.memory;
    stage_.buffer_bytes += state.buffer_bytes;
    stage_.zero_forward_ms += state.forward_gather_ms;
    stage_.zero_backward_ms += state.backward_gather_ms + state.backward_scatter_ms;
    stage_.reduce_ms += state.reduce_ms;
    stage_.update_ms += state.update_ms;
    add_tied_reduction();
    add_activations();
  }

  bool has_copy_of_table() const { return !module_.is_encoder() && table_.is_copied && part_.has_exit; }

  /// First and last stage add up their gradients of a table that both use: each rank those that it owns.
  void add_tied_reduction() {
    const bool is_end = part_.has_entry || part_.has_exit;
    if (module_.is_encoder() || !table_.is_summed_over_ranks || !is_end || !backward_.weights) return;
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
    // What is on its way lies on both sides.
    stage_.buffer_bytes += 2 * largest_saved_ * plan_.offload.activations;
  }

  const Plan& plan_;
  const StagePart& part_;
  const ModulePlan& module_;
  const Module& spec_;
  const ModuleCosts& costs_;
  TiedTable table_;
  bool splits_;  ///< weight gradients run apart from input gradients
  ModuleBackward backward_;
  StageCost& stage_;
  LocalParameters elements_;
  int64_t largest_block_ = 0;
  int64_t largest_weight_ = 0;
  double largest_saved_ = 0;
  PassTime forward_, backward_input_, backward_weight_;
  double activations_ = 0;
  double workspace_ = 0;
};

/// What passes from each stage to the next: the llm's rows once it has begun, else what inline encoders have made.
void add_transfers(const Plan& plan, const std::vector<StagePart>& parts, const ModuleCostsOf& modules,
                   std::vector<StageCost>& stages) {
  for (size_t m = 0; m < plan.modules.size(); ++m) {
    const ModulePlan& module = plan.modules[m];
    if (!module.is_in_pipeline()) continue;
    int32_t begin = 0, end = 0, llm_begin = 0;
    for (const StagePart& part : parts) {
      if (part.has_entry && part.module == static_cast<int32_t>(m)) begin = part.stage;
      if (part.has_exit && part.module == static_cast<int32_t>(m)) end = part.stage;
      if (part.has_entry && !plan.modules[static_cast<size_t>(part.module)].is_encoder()) llm_begin = part.stage;
    }
    const ModuleCosts& costs = *modules[m];
    for (int32_t stage = 0; stage + 1 < static_cast<int32_t>(stages.size()); ++stage) {
      double bytes = 0;
      if (stage >= begin && stage < end) bytes = costs.boundary_bytes;
      if (module.is_encoder() && stage >= end && stage < llm_begin) bytes = costs.output_bytes;
      if (bytes == 0) continue;
      price_transfer(module, costs, bytes, stages[static_cast<size_t>(stage)]);
    }
  }
}

}  // namespace

void price_part(const Plan& plan, const StagePart& part, const ModuleCosts& costs, const TiedTable& table,
                StageCost& stage) {
  PartPricer(plan, part, costs, table, stage).add();
}

void price_transfer(const ModulePlan& module, const ModuleCosts& costs, double bytes, StageCost& stage) {
  stage.transfer_busy_ms += bytes / costs.pipeline_link.ring_bytes_per_ms;
  stage.transfer_ms = std::max(stage.transfer_ms, costs.pipeline_link.latency_ms);
  // Without sequence parallelism every rank needs all rows; they travel in parts and are joined at the other end.
  if (module.tp > 1 && !module.sequence_parallel)
    stage.transfer_ms += all_gather_ms(costs.setting.tp_link, bytes * static_cast<double>(module.tp));
  stage.buffer_bytes += 2 * bytes * static_cast<double>(module.sequence_parallel ? 1 : module.tp);
}

void price_encoder(const Plan& plan, int32_t module, const ModuleCosts& costs, std::vector<StageCost>& stages) {
  const std::vector<StagePart> parts = list_encoder_parts(plan, static_cast<size_t>(module));
  stages.assign(parts.size(), StageCost{});
  for (const StagePart& part : parts) {
    StageCost& cost = stages[static_cast<size_t>(part.stage)];
    PartPricer(plan, part, costs, TiedTable{}, cost).add();
    if (!part.has_exit) {
      cost.transfer_busy_ms = costs.boundary_bytes / costs.pipeline_link.ring_bytes_per_ms;
      cost.transfer_ms = costs.pipeline_link.latency_ms;
    }
  }
}

ModuleBackward backward_of(const Plan& plan, ModuleKind kind) {
  const bool is_trained = !plan.workload.is_frozen(kind);
  return {.weights = is_trained, .inputs = has_backward(plan, kind)};
}

void price_stages(const Plan& plan, const std::vector<StagePart>& parts, const ModuleCostsOf& modules,
                  std::vector<StageCost>& stages) {
  stages.assign(static_cast<size_t>(num_stages(plan)), StageCost{});
  const TiedTable table = tied_table(plan, parts);
  for (const StagePart& part : parts) {
    price_part(plan, part, *modules[static_cast<size_t>(part.module)], table, stages[static_cast<size_t>(part.stage)]);
  }
  if (plan.llm().pp == 1) return;
  for (StageCost& stage : stages) stage.action_ms = plan.cluster.efficiency.action_us * 1e-3;
  add_transfers(plan, parts, modules, stages);
}

}  // namespace weft
