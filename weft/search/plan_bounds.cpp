#include "weft/search/plan_bounds.h"

#include <algorithm>
#include <limits>

#include "weft/base/units.h"
#include "weft/search/plan_beside.h"

namespace weft {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kRounding = 1 + kAllocatorRounding;
/// State is priced as if everything hid behind compute: only its bytes are asked for.
constexpr StateContext kBytesOnly{.forward_ms = 1e18, .backward_ms = 1e18};

double block_ms(const ModuleBackward& backward, const BlockCost& block, bool is_entry = false) {
  double ms = block.time.forward.total_ms();
  if (backward.inputs && !is_entry) ms += block.time.backward_input.total_ms();
  if (backward.weights) ms += block.time.backward_weight.total_ms();
  return ms;
}

/// Where layers differ, the lightest stands for all, and what the others take more is work that weighs nothing.
void add_layers(const Plan& plan, const ModulePlan& module, const ModuleCosts& costs, FluidChain& fluid) {
  const ModuleBackward backward = backward_of(plan, module.kind);
  fluid.layers = static_cast<double>(plan.model.find(module.kind)->layers.size());
  fluid.layer_ms = fluid.forward_ms = fluid.static_bytes = fluid.activation_bytes = kInfinity;
  double workspace = kInfinity;
  for (const BlockCost& block : costs.kinds) {
    fluid.layer_ms = std::min(fluid.layer_ms, block_ms(backward, block));
    // What recomputing adds: the attention alone saves less, but may be cheaper for what it saves.
    const double saves = block.memory.saved - block.memory.saved_full;
    const double saves_selective = block.memory.saved - block.memory.saved_selective;
    double forward_ms = block.time.forward.total_ms();
    if (saves_selective > 0 && saves > 0)
      forward_ms = std::min(forward_ms, block.time.attention.total_ms() * saves / saves_selective);
    fluid.forward_ms = std::min(fluid.forward_ms, forward_ms);
    fluid.static_bytes =
        std::min(fluid.static_bytes, price_state(plan, module, costs, block.parameters, kBytesOnly).memory.total());
    fluid.activation_bytes = std::min(fluid.activation_bytes, backward.runs() ? kRounding * block.memory.saved : 0);
    fluid.recompute_saves_bytes = std::max(fluid.recompute_saves_bytes, kRounding * saves);
    workspace = std::min(workspace, block.memory.workspace);
  }
  fluid.recompute_saves_bytes = std::min(fluid.recompute_saves_bytes, fluid.activation_bytes);
  fluid.memory_bytes -= kRounding * workspace;
  const StateCost head = price_state(plan, module, costs, costs.exit.parameters, kBytesOnly);
  fluid.last_rank_bytes = head.memory.total() + kRounding * std::max(0.0, costs.exit.memory.workspace - workspace) +
                          (backward.runs() ? kRounding * costs.exit.memory.saved : 0);
  fluid.other_ms += module_ms(plan, module, costs) - fluid.layers * fluid.layer_ms;
}

}  // namespace

double module_ms(const Plan& plan, const ModulePlan& module, const ModuleCosts& costs) {
  const ModuleBackward backward = backward_of(plan, module.kind);
  double ms = block_ms(backward, costs.entry, true) + block_ms(backward, costs.exit);
  if (costs.kinds.size() == 1)
    return ms + static_cast<double>(plan.model.find(module.kind)->layers.size()) * block_ms(backward, costs.kinds[0]);
  for (const size_t kind : plan.model.find(module.kind)->layers) ms += block_ms(backward, costs.kinds[kind]);
  return ms;
}

FluidChain fluid_chain(const Plan& plan, const ModuleCostsOf& costs) {
  const Device& device = plan.cluster.device;
  FluidChain fluid{.pp = plan.llm().pp,
                   .microbatches = plan.schedule.microbatches,
                   .memory_bytes = (device.memory_gib - device.reserved_memory_gib) * kGiB};
  for (size_t m = 0; m < plan.modules.size(); ++m) {
    const ModulePlan& module = plan.modules[m];
    if (!module.is_in_pipeline()) continue;
    if (module.is_encoder()) {
      fluid.other_ms += module_ms(plan, module, *costs[m]);
    } else {
      add_layers(plan, module, *costs[m], fluid);
    }
  }
  return fluid;
}

WorkBound work_bound(const Plan& plan, const ModuleCostsOf& costs) {
  const FluidChain fluid = fluid_chain(plan, costs);
  // Every rank has the host's time around a forward and a backward.
  const double host_ms =
      plan.llm().pp > 1 ? 2 * static_cast<double>(plan.llm().vpp) * plan.cluster.efficiency.action_us * 1e-3 : 0;
  return {.bottleneck_ms = least_bottleneck_ms(fluid) + host_ms,
          .pass_ms = fluid.layers * fluid.layer_ms + fluid.other_ms + static_cast<double>(fluid.pp) * host_ms};
}

EncoderLeast least_encoder_work(const Candidate& frame, size_t encoder, const PlanSpace& space, Plan& plan,
                                PlanSimulator& simulator) {
  EncoderLeast least{kInfinity, kInfinity};
  const FrameChoices choices = choices_of(frame, plan, space);
  Candidate c = frame;
  for (EncoderChoice& other : c.encoders) other = {.placement = ModulePlacement::kColocated};
  for (const EncoderChoice& choice : choices.encoders[encoder]) {
    if (choice.is_inline()) continue;
    c.encoders[encoder] = choice;
    c.encoders[encoder].placement = ModulePlacement::kColocated;
    c.encoders[encoder].form = EncoderForm::kBefore;
    fill_plan(c, plan);
    const PlanCosts& costs = simulator.price(plan);
    const EncoderWork work = work_of(plan, costs.encoders[encoder]);
    const ModulePlan& module = plan.modules[static_cast<size_t>(costs.encoders[encoder].module)];
    const double samples = static_cast<double>(module.mbs_scale * c.mbs);
    const double devices = static_cast<double>(module.tp);
    least.forward_ms = std::min(least.forward_ms, work.forward_ms * devices / samples);
    least.total_ms = std::min(least.total_ms, (work.forward_ms + work.backward_ms) * devices / samples);
  }
  return least;
}

}  // namespace weft
