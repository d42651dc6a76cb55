// Priced stages as the schedule's player and the memory walk take them.
#include <algorithm>

#include "weft/meaning/macro_batch.h"
#include "weft/simulate/plan_simulator.h"

namespace weft {
namespace {

template <typename F>
CostTable table_of(const std::vector<StageCost>& stages, F value) {
  std::vector<double> values;
  values.reserve(stages.size());
  for (const StageCost& stage : stages) values.push_back(value(stage));
  return {static_cast<int32_t>(stages.size()), 1, std::move(values)};
}

EncoderCosts encoder_costs(const Plan& plan, const ScheduledEncoder& rows, const PlanCosts::Encoder& encoder) {
  EncoderCosts costs{.bridge_ms = encoder.bridge_ms};
  std::vector<double> forward, backward, busy, latency, reduce, update;
  const double last_share = last_macro_share(plan, plan.modules[static_cast<size_t>(encoder.module)]);
  for (int32_t group = 0; group < rows.num_groups(); ++group) {
    const StageCost& stage = encoder.stages[static_cast<size_t>(group % rows.num_stages)];
    for (int32_t macro = 0; macro < rows.num_macro_batches; ++macro) {
      const double share = macro + 1 == rows.num_macro_batches ? last_share : 1.0;
      forward.push_back(share * stage.forward_ms());
      backward.push_back(share * (stage.backward_input_ms() + stage.backward_weight_ms()));
      busy.push_back(share * stage.transfer_busy_ms);
      latency.push_back(stage.transfer_ms);
    }
    reduce.push_back(stage.reduce_ms);
    update.push_back(stage.update_ms);
  }
  costs.forward_ms = CostTable(rows.num_groups(), rows.num_macro_batches, std::move(forward));
  costs.backward_ms = CostTable(rows.num_groups(), rows.num_macro_batches, std::move(backward));
  costs.p2p_busy_ms = CostTable(rows.num_groups(), rows.num_macro_batches, std::move(busy));
  costs.p2p_ms = CostTable(rows.num_groups(), rows.num_macro_batches, std::move(latency));
  costs.reduce_ms = CostTable(rows.num_groups(), 1, std::move(reduce));
  costs.update_ms = CostTable(rows.num_groups(), 1, std::move(update));
  return costs;
}

}  // namespace

PipelineCosts pipeline_costs(const Plan& plan, const Schedule& schedule, const PlanCosts& costs) {
  PipelineCosts result{
      .forward_ms = table_of(costs.stages, [](const StageCost& s) { return s.forward_ms(); }),
      .backward_input_ms = table_of(costs.stages, [](const StageCost& s) { return s.backward_input_ms(); }),
      .backward_weight_ms = table_of(costs.stages, [](const StageCost& s) { return s.backward_weight_ms(); }),
      .p2p_ms = table_of(costs.stages, [](const StageCost& s) { return s.transfer_ms; }),
      .p2p_busy_ms = table_of(costs.stages, [](const StageCost& s) { return s.transfer_busy_ms; }),
      .reduce_grad_ms = table_of(costs.stages, [](const StageCost& s) { return s.reduce_ms; }),
      .update_ms = table_of(costs.stages, [](const StageCost& s) { return s.update_ms; }),
      .overlaps_reduce = plan.overlap_dp};
  // A gradient goes back over the link that its value came by: from stage s to s - 1.
  const size_t num_stages = costs.stages.size();
  std::vector<double> back_latency(num_stages), back_busy(num_stages);
  for (size_t s = 0; s < num_stages; ++s) {
    const StageCost& before = costs.stages[s == 0 ? 0 : s - 1];
    back_latency[s] = before.transfer_ms;
    back_busy[s] = before.transfer_busy_ms;
  }
  for (size_t e = 0; e < costs.encoders.size(); ++e)
    result.encoders.push_back(encoder_costs(plan, schedule.encoders[e], costs.encoders[e]));
  const auto count = static_cast<int32_t>(num_stages);
  result.gradient_p2p_ms = CostTable(count, 1, std::move(back_latency));
  result.gradient_p2p_busy_ms = CostTable(count, 1, std::move(back_busy));
  return result;
}

std::vector<MemorySplit> memory_of_schedule_rows(const Plan& plan, const Schedule& schedule, const PlanCosts& costs) {
  std::vector<MemorySplit> rows(schedule.rows.size());
  const bool splits_backward = std::any_of(schedule.rows.front().begin(), schedule.rows.front().end(),
                                           [](const Action& a) { return a.kind == ActionKind::kBackwardWeight; });
  std::vector<StageMemory> stages;
  const auto add_state = [](MemorySplit& row, const StageCost& stage) {
    row.weights += stage.state.weights;
    row.gradients += stage.state.gradients;
    row.optimizer += stage.state.optimizer;
    row.buffers += stage.buffer_bytes();
  };
  for (size_t s = 0; s < costs.stages.size(); ++s) {
    const StageCost& stage = costs.stages[s];
    // An input gradient frees nothing where the weight gradient comes later, but leaves more behind.
    stages.push_back({.activation_bytes = stage.activation_bytes,
                      .freed_by_input_gradient_bytes = splits_backward ? -stage.deferred_bytes : 0,
                      .workspace_bytes = stage.workspace_bytes,
                      .passing_bytes = stage.passing_bytes});
    add_state(rows[static_cast<size_t>(schedule.rank_of_stage[s])], stage);
  }
  std::vector<std::vector<EncoderMemory>> encoders;
  for (size_t e = 0; e < costs.encoders.size(); ++e) {
    const ScheduledEncoder& encoder = schedule.encoders[e];
    auto& groups = encoders.emplace_back();
    for (int32_t group = 0; group < encoder.num_groups(); ++group) {
      const StageCost& stage = costs.encoders[e].stages[static_cast<size_t>(group % encoder.num_stages)];
      // Embeddings lie beside what their backward needs, and until then their gradients do too.
      const double outputs = (encoder.is_trained ? 2 : 1) * costs.encoders[e].output_bytes;
      groups.push_back({.activation_bytes = stage.activation_bytes + (encoder.keeps_activations() ? outputs : 0),
                        .output_bytes = outputs,
                        .workspace_bytes = stage.workspace_bytes,
                        .passing_bytes = stage.passing_bytes});
      for (const int32_t row : encoder.groups[static_cast<size_t>(group)])
        add_state(rows[static_cast<size_t>(row)], stage);
    }
  }
  const std::vector<PeakMemory> peaks = walk_memory(schedule, stages, encoders);
  for (size_t r = 0; r < rows.size(); ++r) {
    rows[r].activations = peaks[r].activation_bytes;
    rows[r].workspace = peaks[r].workspace_bytes;
    rows[r].buffers += peaks[r].passing_bytes;
    rows[r].rounding = plan.cluster.measured.allocator_rounding *
                       (peaks[r].activation_bytes + peaks[r].workspace_bytes + rows[r].buffers);
    rows[r].reserved = plan.cluster.device.reserved_memory_gib * 1024.0 * 1024.0 * 1024.0;
  }
  return rows;
}

}  // namespace weft
