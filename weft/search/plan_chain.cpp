#include "weft/search/plan_chain.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "weft/base/units.h"
#include "weft/simulate/plan_simulator.h"

namespace weft {
namespace {

class ChainMaker {
 public:
  ChainMaker(const Plan& plan, const PlanCosts& costs, ChainReading reading)
      : plan_(plan), priced_(costs), is_safe_(reading == ChainReading::kSafe) {}

  PlanChain make() {
    const ModulePlan& llm = plan_.llm();
    BalanceCosts& costs = chain_.costs;
    costs.schedule = *parse_schedule_name(plan_.schedule.name);
    costs.shape = {.pp = llm.pp, .vpp = llm.vpp, .microbatches = plan_.schedule.microbatches};
    costs.p2p_ms = transfer_ms();
    const double action_ms = priced_.stages.front().action_ms;
    costs.every_stage.times = {.forward_ms = action_ms, .backward_input_ms = action_ms};
    for (size_t m = 0; m < plan_.modules.size(); ++m) {
      if (plan_.modules[m].is_in_pipeline()) add_module(m);
    }
    add_beside();
    const Device& device = plan_.cluster.device;
    // Every stage has a layer; the last one also the head.
    const double workspace = std::max(0.0, layer_workspace_);
    const double limit = device.memory_gib - device.reserved_memory_gib - chain_.beside_gib -
                         rounding() * (workspace + (is_safe_ ? buffers_ : 0)) / kGiB;
    // Head and recomputed layers run one after the other, so the larger of the two counts: the chain can only add.
    const double recompute = std::max(0.0, recompute_workspace_);
    costs.last_stage.static_gib +=
        rounding() * std::max(0.0, head_workspace_ - workspace - (is_safe_ ? 0 : recompute)) / kGiB;
    costs.recompute_workspace_gib = rounding() * recompute / kGiB;
    costs.memory_gib = std::max(1e-6, limit);
    return std::move(chain_);
  }

 private:
  static double rounding() { return 1 + kAllocatorRounding; }

  void note(double& noted, double bytes) const {
    noted = noted < 0 ? bytes : is_safe_ ? std::max(noted, bytes) : std::min(noted, bytes);
  }

  double transfer_ms() const {
    double least = 0, most = 0;
    bool is_first = true;
    for (size_t s = 0; s + 1 < priced_.stages.size(); ++s) {
      const double ms = priced_.stages[s].transfer_ms + priced_.stages[s].transfer_busy_ms;
      least = is_first ? ms : std::min(least, ms);
      most = std::max(most, ms);
      is_first = false;
    }
    return is_safe_ ? most : least;
  }

  /// Bytes that stay with a block: its share of weights, gradients and optimizer states.
  double state_gib(const ModulePlan& module, const ModuleCosts& costs, const LocalParameters& elements) const {
    return price_state(plan_, module, costs, elements, {.forward_ms = 1e18, .backward_ms = 1e18}).memory.total() / kGiB;
  }

  /// A backward that the schedule does not split is all in the input gradient's time.
  WorkTimes times_of(const ModulePlan& module, const ModuleCosts& costs, const BlockCost& block, bool is_entry) const {
    WorkTimes times = split_times_of(module, costs, block, is_entry);
    if (splits_backward(chain_.costs.schedule)) return times;
    times.backward_input_ms += times.backward_weight_ms;
    times.backward_weight_ms = 0;
    return times;
  }

  WorkTimes split_times_of(const ModulePlan& module, const ModuleCosts& costs, const BlockCost& block,
                           bool is_entry) const {
    const ModuleBackward backward = backward_of(plan_, module.kind);
    WorkTimes times{.forward_ms = block.time.forward.total_ms()};
    const bool splits = splits_backward(chain_.costs.schedule);
    if (backward.inputs && !is_entry) {
      times.backward_input_ms = block.time.backward_input.total_ms();
      if (splits || !backward.weights) times.backward_input_ms += block.time.hidden_input_tp_ms;
    }
    if (backward.weights)
      times.backward_weight_ms = block.time.backward_weight.total_ms() + (splits ? block.time.hidden_weight_tp_ms : 0);
    if (!is_safe_) return times;
    const StateCost state = price_state(
        plan_, module, costs, block.parameters,
        {.forward_ms = times.forward_ms, .backward_ms = times.backward_input_ms + times.backward_weight_ms});
    times.forward_ms += state.forward_gather_ms;
    times.backward_input_ms += state.backward_gather_ms + state.backward_scatter_ms;
    return times;
  }

  void add_extra(const ModulePlan& module, const ModuleCosts& costs, const BlockCost& block, bool is_entry,
                 StageExtra& extra) {
    const WorkTimes times = times_of(module, costs, block, is_entry);
    extra.times.forward_ms += times.forward_ms;
    extra.times.backward_input_ms += times.backward_input_ms;
    extra.times.backward_weight_ms += times.backward_weight_ms;
    extra.static_gib += state_gib(module, costs, block.parameters);
  }

  void add_module(size_t index) {
    const ModulePlan& module = plan_.modules[index];
    const Module& spec = *plan_.model.find(module.kind);
    const ModuleCosts& costs = *priced_.modules[index];
    const ModuleBackward backward = backward_of(plan_, module.kind);
    const bool is_llm = !module.is_encoder();
    const bool is_first_module = chain_.costs.chain.empty();
    const bool splits = splits_backward(chain_.costs.schedule);
    const size_t num_layers = spec.layers.size();
    for (size_t layer = 0; layer < num_layers;) {
      // Ends of a module stand apart: entry and exit lie with them.
      size_t end = layer + 1;
      while (end < num_layers && layer > 0 && end + 1 < num_layers && spec.layers[end] == spec.layers[layer]) ++end;
      const BlockCost& block = costs.kinds[spec.layers[layer]];
      BlockKind kind{.name = fmt::format("{}{}", name_of(module.kind), chain_.costs.chain.size()),
                     .count = static_cast<int32_t>(end - layer),
                     .times = times_of(module, costs, block, false),
                     .static_gib = state_gib(module, costs, block.parameters)};
      if (backward.runs()) {
        // What weight gradients read stays until they run, recomputed or not.
        const bool defers = is_safe_ && splits && backward.weights;
        const double kept = std::max(block.memory.saved, defers ? block.memory.deferred : 0);
        const double kept_full = std::max(block.memory.saved_full, defers ? block.memory.deferred : 0);
        kind.activation_gib = rounding() * kept / kGiB;
        kind.recompute_saves_gib = rounding() * (kept - kept_full) / kGiB;
      }
      note(layer_workspace_, block.memory.workspace);
      if (backward.runs()) note(recompute_workspace_, block.memory.saved);
      const auto merge = [&](const BlockCost& other, bool is_entry) {
        // Inside the chain, an end's work is its neighbour's.
        const WorkTimes times = times_of(module, costs, other, is_entry);
        kind.times.forward_ms += times.forward_ms;
        kind.times.backward_input_ms += times.backward_input_ms;
        kind.times.backward_weight_ms += times.backward_weight_ms;
        kind.static_gib += state_gib(module, costs, other.parameters);
        if (backward.runs()) kind.activation_gib += rounding() * other.memory.saved / kGiB;
      };
      if (layer == 0) {
        if (is_first_module) {
          add_extra(module, costs, costs.entry, true, chain_.costs.first_stage);
          if (backward.runs()) kind.activation_gib += rounding() * costs.entry.memory.saved / kGiB;
        } else {
          merge(costs.entry, true);
        }
      }
      if (end == num_layers) {
        if (is_llm) {
          BlockCost exit = costs.exit;
          if (plan_.model.has_tied_embeddings && module.pp > 1) exit.parameters.dense += costs.table_elements;
          add_extra(module, costs, exit, false, chain_.costs.last_stage);
          if (backward.runs()) kind.activation_gib += rounding() * exit.memory.saved / kGiB;
          head_workspace_ = exit.memory.workspace;
        } else {
          merge(costs.exit, false);
        }
      }
      chain_.costs.chain.push_back(std::move(kind));
      chain_.module_of_kind.push_back(index);
      layer = end;
    }
    for (const StageCost& stage : priced_.stages) buffers_ = std::max(buffers_, stage.buffer_bytes);
  }

  /// Weights and activations of encoders beside the pipeline lie on every rank.
  void add_beside() {
    const double microbatches = static_cast<double>(plan_.schedule.microbatches * plan_.llm().dp);
    for (const PlanCosts::Encoder& encoder : priced_.encoders) {
      const ModulePlan& module = plan_.modules[static_cast<size_t>(encoder.module)];
      const StageCost& stage = encoder.stages.front();
      double bytes = stage.state.total() + (is_safe_ ? stage.buffer_bytes : 0);
      const double macros = std::ceil(microbatches / static_cast<double>(module.mbs_scale * module.dp));
      const bool keeps = !plan_.workload.is_frozen(module.kind) && !module.recompute_from_inputs;
      // Filling bubbles, at least one macro batch is alive whenever the pipeline is.
      const double alive = module.form == EncoderForm::kBefore ? macros
                           : is_safe_
                               ? std::min(macros, static_cast<double>(std::max<int64_t>(1, module.live_macro_batches)))
                               : 1;
      const double outputs = (plan_.workload.is_frozen(module.kind) ? 1 : 2) * encoder.output_bytes;
      bytes += rounding() * alive * (outputs + (keeps ? stage.activation_bytes : 0));
      chain_.beside_gib += bytes / kGiB;
      if (is_safe_) note(layer_workspace_, stage.workspace_bytes + (keeps ? 0 : stage.activation_bytes));
    }
  }

  const Plan& plan_;
  const PlanCosts& priced_;
  bool is_safe_;
  PlanChain chain_;
  // The largest of all kinds where reading is safe, the smallest where it is hopeful; below 0 before the first.
  double layer_workspace_ = -1;
  double recompute_workspace_ = -1;
  double head_workspace_ = 0;
  double buffers_ = 0;
};

}  // namespace

PlanChain chain_of(const Plan& plan, const PlanCosts& costs, ChainReading reading) {
  return ChainMaker(plan, costs, reading).make();
}

void apply_balance(const PlanChain& chain, const BalancedPipeline& balance, Plan& plan) {
  for (ModulePlan& module : plan.modules) {
    if (!module.is_in_pipeline()) continue;
    for (auto& row : module.layers) std::fill(row.begin(), row.end(), 0);
    for (auto& row : module.recompute) std::fill(row.begin(), row.end(), Recompute{});
  }
  for (size_t rank = 0; rank < balance.stages_of_rank.size(); ++rank) {
    for (size_t chunk = 0; chunk < balance.stages_of_rank[rank].size(); ++chunk) {
      const BalancedStage& stage = balance.stages[static_cast<size_t>(balance.stages_of_rank[rank][chunk])];
      for (size_t kind = 0; kind < stage.blocks.size(); ++kind) {
        ModulePlan& module = plan.modules[chain.module_of_kind[kind]];
        module.layers[rank][chunk] += stage.blocks[kind];
        module.recompute[rank][chunk].full += stage.recomputed[kind];
      }
    }
  }
}

}  // namespace weft
