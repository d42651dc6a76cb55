#include "weft/simulate/played_step.h"

#include <algorithm>

#include "weft/meaning/rank_groups.h"
#include "weft/meaning/rank_row.h"

namespace weft {
namespace {

double communication_of(const PassTime& pass) {
  return pass.tp_ms + pass.cp_ms + pass.ep_ms;
}

/// One module's or all modules' part of a stage.
void add_pass(ActionKind kind, const StageCost& stage, ModuleKind module, ActionTime& time) {
  const bool has_forward = kind == ActionKind::kForward || kind == ActionKind::kEncodeForward;
  const bool has_input = makes_gradient(kind) || kind == ActionKind::kEncodeBackward;
  const bool has_weight =
      kind == ActionKind::kBackward || kind == ActionKind::kBackwardWeight || kind == ActionKind::kEncodeBackward;
  double& compute = time.compute_ms[module];
  if (has_forward) compute += stage.forward.compute_ms;
  if (has_input) compute += stage.backward_input.compute_ms + stage.recompute.compute_ms;
  if (has_weight) compute += stage.backward_weight.compute_ms;
}

void add_rest(ActionKind kind, const StageCost& stage, ActionTime& time) {
  const bool has_forward = kind == ActionKind::kForward || kind == ActionKind::kEncodeForward;
  const bool has_input = makes_gradient(kind) || kind == ActionKind::kEncodeBackward;
  const bool has_weight =
      kind == ActionKind::kBackward || kind == ActionKind::kBackwardWeight || kind == ActionKind::kEncodeBackward;
  if (has_forward) {
    time.communication_ms += communication_of(stage.forward) + stage.zero_forward_ms;
    time.host_ms += stage.offload_forward_ms + stage.action_ms;
  }
  if (has_input) {
    time.communication_ms +=
        communication_of(stage.backward_input) + communication_of(stage.recompute) + stage.zero_backward_ms;
    time.host_ms += stage.offload_backward_ms + stage.action_ms;
  }
  if (has_weight) time.communication_ms += communication_of(stage.backward_weight) + stage.copies_ms;
}

/// The costs of one replica's stages by microbatch: of all modules, and of each by itself.
class ReplicaCosts {
 public:
  ReplicaCosts(const Plan& plan, const CostModel& model, const DrawnBatch& batch, const DrawnBatch::Turns& turns,
               const PlanCosts& mean) {
    std::vector<ModuleCosts> own(plan.modules.size()), none(plan.modules.size());
    ModuleCostsOf modules = mean.modules;
    for (const std::vector<int64_t>& samples : turns) {
      for (size_t m = 0; m < plan.modules.size(); ++m) {
        if (!plan.modules[m].is_in_pipeline()) continue;
        own[m] = model.module_costs(plan, plan.modules[m], batch.joined(samples, plan.modules[m].kind));
        none[m] = model.module_costs(plan, plan.modules[m], Segments());
        modules[m] = &own[m];
      }
      price_stages(plan, mean.parts, modules, all_.emplace_back());
      auto& alone = alone_.emplace_back();
      for (size_t m = 0; m < plan.modules.size(); ++m) {
        if (!plan.modules[m].is_in_pipeline()) continue;
        for (size_t other = 0; other < plan.modules.size(); ++other) {
          if (plan.modules[other].is_in_pipeline()) modules[other] = other == m ? &own[m] : &none[other];
        }
        price_stages(plan, mean.parts, modules, alone[plan.modules[m].kind]);
      }
    }
  }

  ActionTime time_of(const Action& action) const {
    const auto stage = static_cast<size_t>(action.stage), turn = static_cast<size_t>(action.microbatch);
    ActionTime time;
    for (const auto& [kind, stages] : alone_[turn]) add_pass(action.kind, stages[stage], kind, time);
    add_rest(action.kind, all_[turn][stage], time);
    return time;
  }

 private:
  std::vector<std::vector<StageCost>> all_;  ///< [microbatch][stage]
  std::vector<std::map<ModuleKind, std::vector<StageCost>>> alone_;
};

/// The same of encoders beside the pipeline, by encoder and macro batch.
class EncoderTimes {
 public:
  EncoderTimes(const Plan& plan, const CostModel& model, const DrawnBatch& batch, const Schedule& schedule,
               const PlanCosts& mean) {
    for (size_t e = 0; e < mean.encoders.size(); ++e) {
      const ModulePlan& encoder = plan.modules[static_cast<size_t>(mean.encoders[e].module)];
      kinds_.push_back(encoder.kind);
      recomputes_.push_back(schedule.encoders[e].recompute_from_inputs);
      auto& macros = stages_.emplace_back();
      for (int32_t macro = 0; macro < schedule.encoders[e].num_macro_batches; ++macro) {
        const ModuleCosts costs = model.module_costs(plan, encoder, batch.macro_load(encoder, macro));
        price_encoder(plan, mean.encoders[e].module, costs, macros.emplace_back());
      }
    }
  }

  ActionTime time_of(const Action& action, int64_t stage) const {
    const auto encoder = static_cast<size_t>(action.stage);
    const StageCost& cost = stages_[encoder][static_cast<size_t>(action.microbatch)][static_cast<size_t>(stage)];
    ActionTime time;
    add_pass(action.kind, cost, kinds_[encoder], time);
    add_rest(action.kind, cost, time);
    if (action.kind == ActionKind::kEncodeBackward && recomputes_[encoder]) {
      add_pass(ActionKind::kEncodeForward, cost, kinds_[encoder], time);
      add_rest(ActionKind::kEncodeForward, cost, time);
    }
    return time;
  }

 private:
  std::vector<ModuleKind> kinds_;
  std::vector<bool> recomputes_;                             ///< the forward, from inputs
  std::vector<std::vector<std::vector<StageCost>>> stages_;  ///< [encoder][macro batch][stage]
};

/// A rank's pipeline rank in an encoder of the schedule.
int64_t encoder_stage(const Plan& plan, int32_t encoder, int64_t rank) {
  int32_t number = 0;
  for (size_t module = 0; module < plan.modules.size(); ++module) {
    if (plan.modules[module].is_in_pipeline() || number++ != encoder) continue;
    const auto groups = rank_groups(plan, module, rank);
    return groups ? groups->place.pp : 0;
  }
  return 0;
}

/// What of a rank's step besides its actions is priced with an update: it comes with the llm, or with an encoder that
/// has ranks of its own.
double share_of_step(const Plan& plan, const PlanCosts& costs, const Action& action) {
  if (action.kind == ActionKind::kEncodeUpdate) {
    const int32_t module = costs.encoders[static_cast<size_t>(action.stage)].module;
    return plan.modules[static_cast<size_t>(module)].placement == ModulePlacement::kDisjoint ? 1 : 0;
  }
  if (action.kind != ActionKind::kUpdate) return 0;
  const bool has_llm = std::any_of(costs.parts.begin(), costs.parts.end(), [&](const StagePart& part) {
    return part.stage == action.stage && !plan.modules[static_cast<size_t>(part.module)].is_encoder();
  });
  return has_llm ? 1 / static_cast<double>(plan.llm().vpp) : 0;
}

}  // namespace

PlayedStep play_step(PlanSimulator& simulator, const Plan& plan, const Schedule& schedule, const SampleWork& work,
                     const std::vector<SampleLoad>& samples, double outside_ms) {
  PlayedStep played{.step_time_ms = simulator.run_drawn(plan, schedule, work, samples)};
  const PlanCosts costs = simulator.price(plan);
  const DrawnBatch batch(plan, simulator.costs(), work, samples);
  const EncoderTimes encoders(plan, simulator.costs(), batch, schedule, costs);
  std::vector<Timeline> timelines;
  std::vector<ReplicaCosts> replicas;
  size_t slowest = 0;
  for (const DrawnBatch::Turns& turns : batch.replicas()) {
    PipelineCosts times = pipeline_costs(plan, schedule, costs);
    batch.apply(turns, schedule, costs, times);
    Timeline& timeline = timelines.emplace_back();
    played.makespan_ms = std::max(played.makespan_ms, run_schedule(schedule, times, &timeline).makespan_ms);
    if (timeline.makespan_ms > timelines[slowest].makespan_ms) slowest = timelines.size() - 1;
    replicas.emplace_back(plan, simulator.costs(), batch, turns, costs);
  }
  played.timeline.makespan_ms = played.makespan_ms;
  played.outside_ms = std::max(0.0, played.step_time_ms - played.makespan_ms) + outside_ms;
  played.timeline.encoder_names = timelines[slowest].encoder_names;
  const size_t llm = plan.modules.size() - 1;
  for (int64_t rank = 0; rank < plan.world_size; ++rank) {
    auto& events = played.timeline.ranks.emplace_back();
    auto& times = played.times.emplace_back();
    const auto row = row_of_rank(plan, schedule, rank);
    if (!row) continue;
    const auto groups = rank_groups(plan, llm, rank);
    // Encoders on ranks of their own serve all replicas; the slowest decides.
    const size_t replica = groups ? static_cast<size_t>(groups->place.dp) : slowest;
    events = timelines[replica].ranks[static_cast<size_t>(*row)];
    for (TimelineEvent& event : events) {
      const Action& action = event.action;
      event.end_ms = std::max(event.start_ms, event.end_ms - outside_ms * share_of_step(plan, costs, action));
      if (is_pipeline_compute(action.kind)) {
        times.push_back(replicas[replica].time_of(action));
      } else if (is_encoder_compute(action.kind)) {
        times.push_back(encoders.time_of(action, encoder_stage(plan, action.stage, rank)));
      } else {
        times.emplace_back();
      }
    }
  }
  return played;
}

}  // namespace weft
