#include "weft/search/plan_bounds.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "weft/base/units.h"
#include "weft/meaning/macro_batch.h"
#include "weft/meaning/trainable.h"
#include "weft/meaning/weight_copies.h"
#include "weft/search/plan_beside.h"
#include "weft/search/precision.h"

namespace weft {
namespace {

/// State is priced as if everything hid behind compute: only its bytes are asked for.
constexpr StateContext kBytesOnly{.forward_ms = 1e18, .backward_ms = 1e18};

double block_ms(const BackwardNeeds& backward, const BlockCost& block, bool is_entry = false) {
  double ms = block.time.forward.total_ms();
  if (backward.of_inputs(is_entry)) ms += block.time.backward_input.total_ms();
  if (is_entry && backward.weights) ms += block.time.backward_input.tp_ms;
  if (backward.weights) ms += block.time.backward_weight.total_ms();
  return ms;
}

/// Equal layers of a module whose backwards make the same gradients.
struct LayerGroup {
  const BlockCost& block;
  BackwardNeeds backward;
  double count = 0;

  double backward_ms() const { return block_ms(backward, block) - block.time.forward.total_ms(); }
};

/// Where adapters are trained, the backward ends at the first layer that has some, and others have no gradients of
/// weights.
std::vector<LayerGroup> layer_groups(const Plan& plan, const ModulePlan& module, const ModuleCosts& costs) {
  const Trainable trainable(plan);
  const std::vector<size_t>& layers = plan.model.find(module.kind)->layers;
  const auto num_layers = static_cast<int64_t>(layers.size());
  const int64_t before = std::clamp<int64_t>(trainable.first_trained(module.kind) - 1, 0, num_layers);
  std::vector<LayerGroup> groups;
  const auto add = [&](int64_t first, int64_t end) {
    if (first == end) return;
    for (size_t kind = 0; kind < costs.distinct_layers.size(); ++kind) {
      const auto begin = layers.begin() + first;
      const auto place = costs.distinct_layers.size() == 1 ? begin : std::find(begin, layers.begin() + end, kind);
      const auto count =
          costs.distinct_layers.size() == 1 ? end - first : std::count(place, layers.begin() + end, kind);
      if (count == 0) continue;
      groups.push_back({.block = costs.distinct_layers[kind],
                        .backward = trainable.passes_of(module.kind, place - layers.begin() + 1),
                        .count = static_cast<double>(count)});
    }
  };
  add(0, before);
  add(before, num_layers);
  return groups;
}

/// Of an end.
BackwardNeeds entry_backward(const Plan& plan, const ModulePlan& module) {
  return Trainable(plan).passes_of(module.kind, 0);
}
BackwardNeeds exit_backward(const Plan& plan, const ModulePlan& module) {
  return Trainable(plan).passes_of(module.kind, num_blocks(*plan.model.find(module.kind)) - 1);
}

/// What ZeRO's communication adds to a microbatch beyond what hides behind so much compute; below 0 where compute could
/// hide more. A block's communication runs beside its neighbours (zero_exposure.h), and summed over equal blocks that
/// is no less than if each ran beside itself. Of ends, which differ from the layers, only what they can hide counts.
struct Exposed {
  double forward_ms = 0;
  double backward_ms = 0;

  double positive_ms() const { return std::max(0.0, forward_ms) + std::max(0.0, backward_ms); }
  double negative_ms() const { return std::min(0.0, forward_ms) + std::min(0.0, backward_ms); }
};

Exposed exposed(const Plan& plan, const ModulePlan& module, const ModuleCosts& costs, const BlockCost& block,
                const BackwardNeeds& backward, bool is_entry = false) {
  if (!rules_of_weights(module).scatters_gradients) return {};
  const ZeroTraffic traffic = zero_traffic(plan, module, costs, elements_of(block, backward));
  const double overlap = plan.overlap_dp ? plan.cluster.efficiency.overlap : 0;
  const double forward_ms = block.time.forward.total_ms();
  return {.forward_ms = traffic.gather_ms - overlap * forward_ms,
          .backward_ms = traffic.backward_gather_ms + traffic.scatter_ms -
                         overlap * (block_ms(backward, block, is_entry) - forward_ms)};
}

/// What a layer of any kind leaves at least: where kinds differ, one with little to send may run beside one that
/// computes long.
Exposed least_exposed(const Plan& plan, const ModulePlan& module, const ModuleCosts& costs,
                      const std::vector<LayerGroup>& groups) {
  if (!rules_of_weights(module).scatters_gradients) return {};
  if (groups.size() == 1) return exposed(plan, module, costs, groups.front().block, groups.front().backward);
  const double overlap = plan.overlap_dp ? plan.cluster.efficiency.overlap : 0;
  ZeroTraffic least{kInfinity, kInfinity, kInfinity};
  double longest_forward_ms = 0, longest_backward_ms = 0;
  for (const LayerGroup& group : groups) {
    const ZeroTraffic traffic = zero_traffic(plan, module, costs, elements_of(group.block, group.backward));
    least.gather_ms = std::min(least.gather_ms, traffic.gather_ms);
    least.backward_gather_ms = std::min(least.backward_gather_ms, traffic.backward_gather_ms);
    least.scatter_ms = std::min(least.scatter_ms, traffic.scatter_ms);
    longest_forward_ms = std::max(longest_forward_ms, group.block.time.forward.total_ms());
    longest_backward_ms = std::max(longest_backward_ms, group.backward_ms());
  }
  return {.forward_ms = least.gather_ms - overlap * longest_forward_ms,
          .backward_ms = least.backward_gather_ms + least.scatter_ms - overlap * longest_backward_ms};
}

/// What one more block adds to what so many cost. Few may fill less than the one bucket that a stage has at least, so
/// that the slope of many is less than what any number costs.
template <typename Cost>
double of_one_more(Cost cost_ms) {
  constexpr int64_t kMany = 1024;
  return (cost_ms(2 * kMany) - cost_ms(kMany)) / static_cast<double>(kMany);
}

/// What one more block adds to the update that ends a rank's step, apart from what comes back behind the next forward,
/// and how long that takes.
struct StepEnd {
  double update_ms = 0;
  double returned_ms = 0;
};

StepEnd step_end(const Plan& plan, const ModulePlan& module, const ModuleCosts& costs, const BlockCost& block,
                 const BackwardNeeds& backward) {
  const auto update_ms = [&](int64_t blocks, const StateContext& context) {
    return price_state(plan, module, costs, elements_of(block, backward, blocks), context).update_ms;
  };
  const double hidden_ms = of_one_more([&](int64_t blocks) { return update_ms(blocks, kBytesOnly); });
  return {.update_ms = hidden_ms,
          .returned_ms = of_one_more([&](int64_t blocks) { return update_ms(blocks, {}); }) - hidden_ms};
}

/// A layer's part of it at least, of whatever kind.
double least_step_end_ms(const Plan& plan, const ModulePlan& module, const ModuleCosts& costs,
                         const std::vector<LayerGroup>& groups) {
  const double overlap = plan.overlap_dp ? plan.cluster.efficiency.overlap : 0;
  StepEnd least{kInfinity, kInfinity};
  double longest_forward_ms = 0;
  for (const LayerGroup& group : groups) {
    const StepEnd end = step_end(plan, module, costs, group.block, group.backward);
    least.update_ms = std::min(least.update_ms, end.update_ms);
    least.returned_ms = std::min(least.returned_ms, end.returned_ms);
    longest_forward_ms = std::max(longest_forward_ms, group.block.time.forward.total_ms());
  }
  return least.update_ms + std::max(0.0, least.returned_ms - overlap * longest_forward_ms);
}

/// What an end of the pipeline may hide of what comes back to the layers of its stage.
double hidden_step_end_ms(const Plan& plan, const ModulePlan& module, const ModuleCosts& costs, const BlockCost& block,
                          const BackwardNeeds& backward) {
  const double overlap = plan.overlap_dp ? plan.cluster.efficiency.overlap : 0;
  return std::min(0.0,
                  step_end(plan, module, costs, block, backward).returned_ms - overlap * block.time.forward.total_ms());
}

/// What one more block adds to the reduction of a stage's gradients beyond what its own backward hides, if anything
/// does; below 0 where it hides more.
double reduced_ms(const Plan& plan, const ModulePlan& module, const ModuleCosts& costs, const BlockCost& block,
                  const BackwardNeeds& backward, double backward_ms) {
  const auto reduce_ms = [&](int64_t blocks) {
    return price_state(plan, module, costs, elements_of(block, backward, blocks), {}).reduce_ms;
  };
  const double overlap = plan.overlap_dp ? plan.cluster.efficiency.overlap : 0;
  return of_one_more(reduce_ms) - overlap * backward_ms;
}

/// Of a layer, of whatever kind.
double least_reduced_ms(const Plan& plan, const ModulePlan& module, const ModuleCosts& costs,
                        const std::vector<LayerGroup>& groups) {
  double longest_ms = 0;
  for (const LayerGroup& group : groups) longest_ms = std::max(longest_ms, group.backward_ms());
  double least_ms = kInfinity;
  for (const LayerGroup& group : groups)
    least_ms = std::min(least_ms, reduced_ms(plan, module, costs, group.block, group.backward, longest_ms));
  return std::max(0.0, least_ms);
}

/// A block's passes as works of a schedule.
StageTimes works_of(const BackwardNeeds& backward, bool splits, const BlockCost& block, bool is_entry = false) {
  StageTimes works{};
  works[kForwardWork] = block.time.forward.total_ms();
  if (backward.of_inputs(is_entry)) works[kInputWork] += block.time.backward_input.total_ms();
  if (is_entry && backward.weights) works[kInputWork] += block.time.backward_input.tp_ms;
  if (backward.weights) works[splits ? kWeightWork : kInputWork] += block.time.backward_weight.total_ms();
  return works;
}

/// An end of the pipeline, less what it may hide of what its stage's layers leave.
StageTimes end_works(const Plan& plan, const ModulePlan& module, const ModuleCosts& costs, const BlockCost& block,
                     bool is_entry, const Exposed& of_layer, const StageTimes& layer) {
  const BackwardNeeds backward = is_entry ? entry_backward(plan, module) : exit_backward(plan, module);
  StageTimes works = works_of(backward, has_split_backward(plan, plan.llm()), block, is_entry);
  const Exposed zero = exposed(plan, module, costs, block, backward, is_entry);
  if (of_layer.forward_ms > 0) works[kForwardWork] += std::min(0.0, zero.forward_ms);
  if (of_layer.backward_ms > 0) works[kInputWork] += std::min(0.0, zero.backward_ms);
  const double backward_ms = block_ms(backward, block, is_entry) - block.time.forward.total_ms();
  if (layer[kReduceWork] > 0)
    works[kReduceWork] = std::min(0.0, reduced_ms(plan, module, costs, block, backward, backward_ms));
  works[kUpdateWork] = hidden_step_end_ms(plan, module, costs, block, backward);
  return works;
}

/// Where layers differ, the lightest stands for all, and what the others take more is work that weighs nothing.
void add_layers(const Plan& plan, const ModulePlan& module, const ModuleCosts& costs, FluidChain& fluid) {
  const std::vector<LayerGroup> groups = layer_groups(plan, module, costs);
  const BackwardNeeds at_entry = entry_backward(plan, module), at_exit = exit_backward(plan, module);
  fluid.layers = static_cast<double>(plan.model.find(module.kind)->layers.size());
  fluid.layer_ms = fluid.forward_ms = fluid.static_bytes = fluid.activation_bytes = kInfinity;
  double workspace = kInfinity;
  // The step's end is a rank's work, too, and comes once for all microbatches.
  const auto microbatches = static_cast<double>(plan.schedule.microbatches);
  const double exposed_ms = least_exposed(plan, module, costs, groups).positive_ms() +
                            least_step_end_ms(plan, module, costs, groups) / microbatches;
  const double allocator_factor = plan.cluster.measured.allocator_factor();
  for (const LayerGroup& group : groups) {
    const BlockCost& block = group.block;
    fluid.layer_ms = std::min(fluid.layer_ms, block_ms(group.backward, block) + exposed_ms);
    // What recomputing adds: the attention alone saves less, but may be cheaper for what it saves.
    const double saves = block.memory.saved - block.memory.saved_full;
    const double saves_selective = block.memory.saved - block.memory.saved_selective;
    double forward_ms = block.time.forward.total_ms();
    if (saves_selective > 0 && saves > 0)
      forward_ms = std::min(forward_ms, block.time.attention.total_ms() * saves / saves_selective);
    fluid.forward_ms = std::min(fluid.forward_ms, forward_ms);
    fluid.static_bytes =
        std::min(fluid.static_bytes,
                 price_state(plan, module, costs, elements_of(block, group.backward), kBytesOnly).memory.total());
    fluid.activation_bytes =
        std::min(fluid.activation_bytes, group.backward.runs() ? allocator_factor * block.memory.saved : 0);
    fluid.recompute_saves_bytes = std::max(fluid.recompute_saves_bytes, allocator_factor * saves);
    workspace = std::min(workspace, block.memory.workspace);
  }
  fluid.recompute_saves_bytes = std::min(fluid.recompute_saves_bytes, fluid.activation_bytes);
  fluid.workspace_bytes = allocator_factor * workspace;
  fluid.memory_bytes -= fluid.workspace_bytes;
  const StateCost head = price_state(plan, module, costs, elements_of(costs.exit, at_exit), kBytesOnly);
  const StateCost table = price_state(plan, module, costs, elements_of(costs.entry, at_entry), kBytesOnly);
  fluid.first_state_bytes = table.memory.total();
  fluid.last_state_bytes = head.memory.total();
  fluid.first_rank_bytes =
      fluid.first_state_bytes + (at_entry.runs() ? allocator_factor * costs.entry.memory.saved : 0);
  fluid.last_rank_bytes = head.memory.total() +
                          allocator_factor * std::max(0.0, costs.exit.memory.workspace - workspace) +
                          (at_exit.runs() ? allocator_factor * costs.exit.memory.saved : 0);
  // Compute of embedding and head may hide some of the layers' communication.
  fluid.first_ms = std::max(0.0, block_ms(at_entry, costs.entry, true) +
                                     exposed(plan, module, costs, costs.entry, at_entry, true).negative_ms() +
                                     hidden_step_end_ms(plan, module, costs, costs.entry, at_entry) / microbatches);
  fluid.last_ms =
      std::max(0.0, block_ms(at_exit, costs.exit) + exposed(plan, module, costs, costs.exit, at_exit).negative_ms() +
                        hidden_step_end_ms(plan, module, costs, costs.exit, at_exit) / microbatches);
  if (groups.size() == 1) return;
  double layers_ms = 0;
  for (const LayerGroup& group : groups)
    layers_ms += group.count * (block_ms(group.backward, group.block) + exposed_ms);
  fluid.other_ms += std::max(0.0, layers_ms - fluid.layers * fluid.layer_ms);
}

}  // namespace

double module_ms(const Plan& plan, const ModulePlan& module, const ModuleCosts& costs) {
  double ms = block_ms(entry_backward(plan, module), costs.entry, true) +
              block_ms(exit_backward(plan, module), costs.exit) + costs.output.forward.total_ms();
  if (module.is_encoder() && Trainable(plan).gives_gradients(module)) ms += costs.output.backward_input.total_ms();
  for (const LayerGroup& group : layer_groups(plan, module, costs))
    ms += group.count * block_ms(group.backward, group.block);
  return ms;
}

LayeredWork layered_work(const Plan& plan, const ModuleCostsOf& costs) {
  LayeredWork work;
  const bool splits = has_split_backward(plan, plan.llm());
  bool has_inline = false;
  for (size_t m = 0; m < plan.modules.size(); ++m) {
    const ModulePlan& module = plan.modules[m];
    if (!module.is_in_pipeline()) continue;
    if (module.is_encoder()) {
      StageTimes& all = work.others.emplace_back();
      const FreeWork free = free_work(plan, module, *costs[m]);
      for (size_t w = 0; w < kNumWorks; ++w) all[w] = free.ms * free.shares[w];
      has_inline = true;
      continue;
    }
    const std::vector<LayerGroup> groups = layer_groups(plan, module, *costs[m]);
    StageTimes least;
    least.fill(kInfinity);
    for (const LayerGroup& group : groups) {
      const StageTimes works = works_of(group.backward, splits, group.block);
      for (size_t w = 0; w < kNumWorks; ++w) least[w] = std::min(least[w], works[w]);
    }
    if (groups.size() > 1) {
      StageTimes& rest = work.others.emplace_back();
      for (const LayerGroup& group : groups) {
        const StageTimes works = works_of(group.backward, splits, group.block);
        for (size_t w = 0; w < kNumWorks; ++w) rest[w] += group.count * (works[w] - least[w]);
      }
    }
    const Exposed zero = least_exposed(plan, module, *costs[m], groups);
    work.layer = least;
    work.layer[kForwardWork] += std::max(0.0, zero.forward_ms);
    work.layer[kInputWork] += std::max(0.0, zero.backward_ms);
    work.layer[kReduceWork] = least_reduced_ms(plan, module, *costs[m], groups);
    work.layer[kUpdateWork] = least_step_end_ms(plan, module, *costs[m], groups);
    work.first = end_works(plan, module, *costs[m], costs[m]->entry, true, zero, work.layer);
    work.last = end_works(plan, module, *costs[m], costs[m]->exit, false, zero, work.layer);
  }
  // Behind an encoder the embedding lies wherever the llm begins.
  if (has_inline) work.others.push_back(std::exchange(work.first, {}));
  return work;
}

FreeWork free_work(const Plan& plan, const ModulePlan& module, const ModuleCosts& costs) {
  const std::vector<LayerGroup> groups = layer_groups(plan, module, costs);
  const BackwardNeeds at_entry = entry_backward(plan, module), at_exit = exit_backward(plan, module);
  const bool splits = has_split_backward(plan, plan.llm());
  FreeWork work;
  const auto add = [&](const BlockCost& block, const BackwardNeeds& backward, double count, bool is_entry = false) {
    const StageTimes works = works_of(backward, splits, block, is_entry);
    for (size_t w = 0; w < kNumWorks; ++w) work.shares[w] += count * works[w];
  };
  add(costs.entry, at_entry, 1, true);
  add(costs.exit, at_exit, 1);
  work.shares[kForwardWork] += costs.output.forward.total_ms();
  if (module.is_encoder() && Trainable(plan).gives_gradients(module))
    work.shares[kInputWork] += costs.output.backward_input.total_ms();
  for (const LayerGroup& group : groups) add(group.block, group.backward, group.count);
  // Ends may hide some of the layers' communication, so only what all of them leave counts.
  if (rules_of_weights(module).scatters_gradients) {
    Exposed all = exposed(plan, module, costs, costs.entry, at_entry, true);
    const Exposed last = exposed(plan, module, costs, costs.exit, at_exit);
    all.forward_ms = std::min(0.0, all.forward_ms) + std::min(0.0, last.forward_ms);
    all.backward_ms = std::min(0.0, all.backward_ms) + std::min(0.0, last.backward_ms);
    for (const LayerGroup& group : groups) {
      const Exposed of_kind = exposed(plan, module, costs, group.block, group.backward);
      all.forward_ms += group.count * of_kind.forward_ms;
      all.backward_ms += group.count * of_kind.backward_ms;
    }
    work.shares[kForwardWork] += std::max(0.0, all.forward_ms);
    work.shares[kInputWork] += std::max(0.0, all.backward_ms);
  }
  for (const double ms : work.shares) work.ms += ms;
  if (work.ms > 0) {
    for (double& share : work.shares) share /= work.ms;
  }
  return work;
}

StageTimes every_stage(const Plan& plan, const ModuleCostsOf& costs) {
  StageTimes times{};
  times[kForwardWork] = times[kInputWork] = action_ms(plan);
  if (plan.llm().pp == 1) return times;
  // Boundaries inside encoders pass other rows than those inside the llm.
  double least = kInfinity;
  for (size_t m = 0; m < plan.modules.size(); ++m) {
    if (!plan.modules[m].is_in_pipeline()) continue;
    StageCost stage;
    price_transfer(plan.modules[m], *costs[m], costs[m]->boundary_bytes, stage);
    least = std::min(least, stage.transfer_ms + stage.transfer_busy_ms);
    if (!plan.modules[m].is_encoder()) continue;
    StageCost behind;
    price_transfer(plan.modules[m], *costs[m], costs[m]->output_bytes, behind);
    least = std::min(least, behind.transfer_ms + behind.transfer_busy_ms);
  }
  times[kTransferWork] = least;
  return times;
}

FluidChain fluid_chain(const Plan& plan, const ModuleCostsOf& costs, Placement placement) {
  const ClusterDevice& device = plan.cluster.device;
  FluidChain fluid{.pp = plan.llm().pp,
                   .microbatches = plan.schedule.microbatches,
                   .memory_bytes = (device.memory_gib - device.reserved_memory_gib) * kGiB};
  bool has_inline = false;
  const double allocator_factor = plan.cluster.measured.allocator_factor();
  fluid.stage_bytes = fluid.passing_bytes = kInfinity;
  for (size_t m = 0; m < plan.modules.size(); ++m) {
    const ModulePlan& module = plan.modules[m];
    if (!module.is_in_pipeline()) continue;
    for (const LayerGroup& group : layer_groups(plan, module, *costs[m])) {
      const BlockCost& block = group.block;
      const StateCost state = price_state(plan, module, *costs[m], elements_of(block, group.backward),
                                          {.forward_ms = 1e18,
                                           .backward_ms = 1e18,
                                           .largest_block_elements = static_cast<double>(block.parameters.total()),
                                           .largest_weight_elements = static_cast<double>(block.largest_weight)});
      fluid.stage_bytes = std::min(fluid.stage_bytes, allocator_factor * state.flight_bytes);
      fluid.passing_bytes = std::min(fluid.passing_bytes, allocator_factor * state.passing_bytes);
    }
    if (module.is_encoder()) {
      fluid.other_ms += module_ms(plan, module, *costs[m]);
      has_inline = true;
    } else {
      add_layers(plan, module, *costs[m], fluid);
    }
  }
  // Behind an encoder the embedding lies wherever the llm begins; with chunks that come back, the head is elsewhere.
  if (has_inline) {
    fluid.other_ms += std::exchange(fluid.first_ms, 0);
    fluid.first_rank_bytes = fluid.first_state_bytes = 0;
  }
  if (placement == Placement::kV) {
    fluid.comes_back = true;
    fluid.other_ms += std::exchange(fluid.last_ms, 0);
    fluid.last_rank_bytes = fluid.last_state_bytes = 0;
  }
  return fluid;
}

double least_busy_ms(const Plan& plan, const FluidChain& fluid, const RankLoad& load) {
  FluidChain chain = fluid;
  const auto chunks = static_cast<double>(load.chunks);
  chain.take(load.beside);
  chain.memory_bytes -= chunks * fluid.stage_bytes + fluid.passing_bytes;
  chain.workspace_bytes += fluid.passing_bytes;
  // Every rank has the host's time around a forward and a backward.
  const double host_ms = 2 * chunks * action_ms(plan);
  return least_bottleneck_ms(chain, load.in_flight) + host_ms;
}

double least_encoder_ms(const Candidate& frame, size_t encoder, const PlanSpace& space, Plan& plan,
                        PlanSimulator& simulator) {
  double least_ms = kInfinity;
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
    const EncoderWork work = work_of(plan, costs.encoders[encoder], LastMacro::kEvenShares);
    const ModulePlan& module = plan.modules[static_cast<size_t>(costs.encoders[encoder].module)];
    const double samples = static_cast<double>(samples_at_once(plan, module));
    const double devices = static_cast<double>(module.tp * module.cp);
    least_ms = std::min(least_ms, (work.forward_ms + work.backward_ms) * devices / samples);
  }
  return least_ms;
}

}  // namespace weft
