#include "weft/validate/learn_from_run.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "weft/base/as_double.h"
#include "weft/base/median.h"
#include "weft/cost/apply_profile.h"
#include "weft/cost/state_cost.h"
#include "weft/meaning/busy_ranks.h"
#include "weft/meaning/held_state.h"
#include "weft/simulate/wanted_shapes.h"
#include "weft/validate/least_squares.h"

namespace weft {
namespace {

constexpr double kLeastFactor = 0.02, kMostFactor = 50;
constexpr double kShortestMs = 1e-6;
/// Communication of a smaller share of a step is not told from noise.
constexpr double kLeastShare = 0.01;

/// A factor that is sought: of a module's forwards or backwards.
using Unknown = std::pair<ModuleKind, bool>;

bool is_backward(ActionKind kind) {
  return kind != ActionKind::kForward && kind != ActionKind::kEncodeForward;
}

/// One action of a rank, in the median step.
struct Observed {
  std::map<Unknown, double> compute_ms;  ///< predicted
  double host_ms = 0;                    ///< predicted
  double measured_ms = 0;                ///< without communication
};

/// The same, step by step.
struct Observations {
  std::vector<double> measured, host;
  std::map<Unknown, std::vector<double>> compute;
};

/// Everything of a run that can be learned from.
struct Lessons {
  std::vector<Observed> actions;
  Compared updates, communication, step;
  double outside_ms = 0;
};

using EventKey = std::tuple<int64_t, ActionKind, int32_t, int32_t>;

void observe(int64_t rank, const std::vector<TimelineEvent>& measured, const std::vector<TimelineEvent>& predicted,
             const std::vector<ActionTime>& times, std::map<EventKey, Observations>& all) {
  std::map<EventKey, const TimelineEvent*> found;
  for (const TimelineEvent& event : measured)
    found[{rank, event.action.kind, event.action.stage, event.action.microbatch}] = &event;
  for (size_t i = 0; i < predicted.size(); ++i) {
    const Action& action = predicted[i].action;
    if (!is_pipeline_compute(action.kind) && !is_encoder_compute(action.kind)) continue;
    const auto at = found.find({rank, action.kind, action.stage, action.microbatch});
    if (at == found.end()) continue;
    Observations& own = all[at->first];
    own.measured.push_back(at->second->end_ms - at->second->start_ms - at->second->blocked_ms);
    own.host.push_back(times[i].host_ms);
    for (const auto& [kind, ms] : times[i].compute_ms) own.compute[{kind, is_backward(action.kind)}].push_back(ms);
  }
}

Result<Lessons> lessons_of(const Plan& given, const RunRecord& record, const Profile& profile) {
  Plan plan = given;
  apply_profile(profile, plan);
  WEFT_TRY(PlanSimulator simulator, PlanSimulator::create(plan, &profile));
  WEFT_TRY(const Schedule schedule, playable_schedule(plan));
  const SampleWork work(plan, simulator.costs());
  std::map<EventKey, Observations> all;
  for (const StepRecord* step : settled_steps(record)) {
    const PlayedStep played = play_step(simulator, plan, schedule, work, step->samples, profile.step_ms);
    for (size_t rank = 0; rank < step->ranks.size(); ++rank)
      observe(static_cast<int64_t>(rank), step->ranks[rank].events, played.timeline.ranks[rank], played.times[rank],
              all);
  }
  Lessons lessons;
  for (const auto& [key, observations] : all) {
    Observed& action = lessons.actions.emplace_back();
    action.measured_ms = median_of(observations.measured);
    action.host_ms = median_of(observations.host);
    for (const auto& [unknown, ms] : observations.compute) action.compute_ms[unknown] = median_of(ms);
  }
  WEFT_TRY(const RunComparison comparison, compare_run(given, record, &profile));
  lessons.step = comparison.step_ms;
  for (const ComparedActions& action : comparison.actions) {
    const auto count = static_cast<double>(action.count);
    if (action.kind == ActionKind::kUpdate || action.kind == ActionKind::kEncodeUpdate) {
      lessons.updates.predicted += count * action.ms.predicted;
      lessons.updates.measured += count * action.ms.measured;
    }
    lessons.communication.predicted += count * action.communication_ms.predicted;
    lessons.communication.measured += count * action.communication_ms.measured;
  }
  lessons.outside_ms = comparison.terms.back().ms.measured;
  return lessons;
}

/// What all modules' forwards, or backwards, together are to their prediction.
double common_factor(const std::vector<Observed>& actions, bool backward) {
  double predicted = 0, measured = 0;
  for (const Observed& action : actions) {
    double own = 0;
    for (const auto& [unknown, ms] : action.compute_ms) own += unknown.second == backward ? ms : 0;
    predicted += own;
    if (own > 0) measured += std::max(0.0, action.measured_ms - action.host_ms);
  }
  return predicted > 0 ? std::clamp(measured / predicted, kLeastFactor, kMostFactor) : 1;
}

/// Factors by which predicted compute comes nearest to what was measured. Modules that always run in the same actions
/// cannot be told apart: their factors stay near the common one, as far as `deviation` of it.
std::map<Unknown, double> fitted(const std::vector<Observed>& actions, double deviation) {
  std::map<Unknown, size_t> places;
  double mean_ms = 0;
  for (const Observed& action : actions) {
    for (const auto& [unknown, ms] : action.compute_ms) {
      if (ms > 0) places.try_emplace(unknown, places.size());
    }
    mean_ms += action.measured_ms / static_cast<double>(actions.size());
  }
  std::map<Unknown, double> factors;
  if (places.empty() || mean_ms <= 0) return factors;
  constexpr double kUsualError = 0.05;
  const double unit_ms = kUsualError * mean_ms;
  std::vector<double> common(places.size()), deviations(places.size());
  for (const auto& [unknown, place] : places) {
    common[place] = common_factor(actions, unknown.second);
    deviations[place] = deviation * common[place];
  }
  LeastSquares problem{.start = common,
                       .low = std::vector<double>(places.size(), kLeastFactor),
                       .high = std::vector<double>(places.size(), kMostFactor),
                       .deviation = deviations,
                       .num_residuals = actions.size(),
                       .residuals = [&](const std::vector<double>& at, std::vector<double>& out) {
                         for (size_t i = 0; i < actions.size(); ++i) {
                           double ms = actions[i].host_ms - actions[i].measured_ms;
                           for (const auto& [unknown, own] : actions[i].compute_ms) {
                             if (own > 0) ms += at[places.at(unknown)] * own;
                           }
                           out[i] = ms / unit_ms;
                         }
                       }};
  const std::vector<double> found = solve(problem);
  for (const auto& [unknown, place] : places) factors[unknown] = found[place];
  return factors;
}

void scale_blocks(const std::map<Unknown, double>& factors, LearnedProfile& learned) {
  const auto factor_of = [&](ModuleKind kind, bool backward) {
    const auto found = factors.find({kind, backward});
    return found == factors.end() ? 1.0 : found->second;
  };
  for (BlockMeasurement& block : learned.profile.blocks) {
    const double forward = factor_of(block.shape.module, false), backward = factor_of(block.shape.module, true);
    block.forward_ms = std::max(kShortestMs, forward * block.forward_ms);
    block.attention_ms *= forward;
    block.backward_input_ms *= backward;
    block.backward_weight_ms *= backward;
  }
  for (const auto& [unknown, factor] : factors) {
    LearnedProfile::Factors& own = learned.modules[unknown.first];
    (unknown.second ? own.backward : own.forward) *= factor;
  }
}

/// Where no update was measured, the run's own is the measurement.
void add_update(const Plan& plan, const RunRecord& record, Profile& profile) {
  for (int64_t rank = 0; rank < plan.world_size; ++rank) {
    std::vector<double> ms;
    for (const StepRecord* step : settled_steps(record)) {
      double sum = 0;
      for (const TimelineEvent& event : step->ranks[static_cast<size_t>(rank)].events) {
        if (event.action.kind == ActionKind::kUpdate || event.action.kind == ActionKind::kEncodeUpdate)
          sum += event.end_ms - event.start_ms;
      }
      ms.push_back(sum);
    }
    const double elements = as_double(held_state(plan, rank).optimizer) / optimizer_bytes(plan.precision);
    if (elements < 1 || median_of(ms) <= 0) continue;
    profile.updates.push_back(
        {.busy_ranks = busy_ranks(plan),
         .elements = elements,
         .ms = median_of(ms),
         .sureness = {.runs = std::ssize(ms), .spread_percent = 100 * median_error(ms) / median_of(ms)}});
  }
}

/// Blocks that a profile lacks have what formulas say, so that they are scaled with the others.
void complete(const Profile& formulas, Profile& profile) {
  const std::vector<BlockMeasurement> known = profile.blocks;
  for (const BlockMeasurement& block : formulas.blocks) {
    const bool is_known = std::any_of(known.begin(), known.end(), [&](const BlockMeasurement& other) {
      return other.shape.module == block.shape.module && other.shape.block == block.shape.block &&
             other.shape.strategy == block.shape.strategy;
    });
    if (!is_known) profile.blocks.push_back(block);
  }
}

}  // namespace

Result<Profile> profile_of_formulas(const Plan& plan) {
  WEFT_TRY(const std::vector<BlockShape> shapes, wanted_shapes(plan));
  Profile profile{.source = "formulas",
                  .device = plan.cluster.device.name,
                  .model = plan.model.name,
                  .model_hash = hash_of(plan.model.config),
                  .precision = plan.precision.compute};
  Cluster one_node = plan.cluster;
  one_node.nodes = 1;
  const AnalyticTimes formula(one_node);
  for (const BlockShape& shape : shapes) {
    const Module* module = plan.model.find(shape.module);
    const std::optional<Block> block = module == nullptr ? std::nullopt : block_of(*module, shape);
    if (!block) continue;
    const BlockSetting setting{.tp = shape.tp,
                               .cp = shape.cp,
                               .cp_ulysses = shape.cp_ulysses,
                               .ep = shape.ep,
                               .sequence_parallel = shape.sequence_parallel,
                               .experts_over_tp = shape.experts_over_tp,
                               .even_experts = true,
                               .precision = plan.precision.compute,
                               .attention = shape.attention};
    const BlockTime time =
        formula.time_of(*module, *block, setting, {{shape.sequence_tokens, shape.tokens / shape.sequence_tokens}}, {});
    profile.blocks.push_back({.shape = shape,
                              .forward_ms = std::max(kShortestMs, time.forward.compute_ms),
                              .backward_input_ms = time.backward_input.compute_ms,
                              .backward_weight_ms = time.backward_weight.compute_ms,
                              .attention_ms = time.attention.compute_ms});
  }
  return profile;
}

Result<LearnedProfile> learn_from_run(const Plan& plan, const RunRecord& record, const Profile* known) {
  LearnedProfile learned;
  WEFT_TRY(const Profile formulas, profile_of_formulas(plan));
  learned.profile = known == nullptr ? formulas : *known;
  complete(formulas, learned.profile);
  WEFT_TRY(const RunComparison before, compare_run(plan, record, known));
  learned.before = before.step_ms;
  // Recomputation runs forwards inside backwards, so a second round finds a little more.
  constexpr int kRounds = 3;
  for (int round = 0; round < kRounds; ++round) {
    WEFT_TRY(const Lessons lessons, lessons_of(plan, record, learned.profile));
    constexpr double kFirstDeviation = 0.3, kLaterDeviation = 0.1;
    scale_blocks(fitted(lessons.actions, round == 0 ? kFirstDeviation : kLaterDeviation), learned);
    learned.profile.step_ms = lessons.outside_ms;
    if (learned.profile.updates.empty()) {
      learned.updates = lessons.updates.predicted > 0 ? lessons.updates.measured / lessons.updates.predicted : 1;
      add_update(plan, record, learned.profile);
    } else if (lessons.updates.predicted > 0 && lessons.updates.measured > 0) {
      const double factor = lessons.updates.measured / lessons.updates.predicted;
      for (UpdateMeasurement& update : learned.profile.updates) update.ms = std::max(kShortestMs, factor * update.ms);
      learned.updates *= factor;
    }
    const Compared& communication = lessons.communication;
    const bool tells = communication.predicted > 0 && communication.measured > 0 &&
                       communication.measured > kLeastShare * lessons.step.measured * as_double(plan.world_size);
    if (tells && !learned.profile.links.empty()) {
      const double factor = std::clamp(communication.measured / communication.predicted, kLeastFactor, kMostFactor);
      for (LinkMeasurement& link : learned.profile.links) link.ms = std::max(kShortestMs, factor * link.ms);
      learned.links = learned.links.value_or(1) * factor;
    }
    keep_in_range(learned.profile);
  }
  learned.profile.date = std::max(learned.profile.date, record.header.date);
  WEFT_TRY(const RunComparison after, compare_run(plan, record, &learned.profile));
  learned.after = after.step_ms;
  return learned;
}

}  // namespace weft
