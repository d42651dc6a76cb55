#include "weft/search/plan_search.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>
#include <tuple>

#include <fmt/format.h>

#include "weft/base/units.h"
#include "weft/plan/plan_schedule.h"
#include "weft/schedule/encoder_forms.h"
#include "weft/search/enumerate.h"
#include "weft/search/fluid_bound.h"
#include "weft/search/plan_chain.h"
#include "weft/simulate/plan_simulator.h"

namespace weft {
namespace {

using Clock = std::chrono::steady_clock;
constexpr double kInfinity = std::numeric_limits<double>::infinity();

/// Time that one placement may take. Short pipelines with one chunk a rank are proven within milliseconds, so that the
/// limit only guards against surprises; for others the proof is often out of reach, and the best so far has to do.
double placement_limit_s(const Candidate& c) {
  constexpr int64_t kShortPipeline = 8;
  return c.vpp > 1 || c.pp > kShortPipeline ? 0.01 : 2;
}

/// How often a placement that turned out not to fit is sought again.
constexpr int kMostAttempts = 4;

/// Forward and backward of one microbatch in a block, without recomputation.
double block_ms(const ModuleBackward& backward, const BlockCost& block, bool is_entry = false) {
  double ms = block.time.forward.total_ms();
  if (backward.inputs && !is_entry) ms += block.time.backward_input.total_ms();
  if (backward.weights) ms += block.time.backward_weight.total_ms();
  return ms;
}

/// The same of a whole module.
double module_ms(const Plan& plan, const ModulePlan& module, const ModuleCosts& costs) {
  const ModuleBackward backward = backward_of(plan, module.kind);
  double ms = block_ms(backward, costs.entry, true) + block_ms(backward, costs.exit);
  for (const size_t kind : plan.model.find(module.kind)->layers) ms += block_ms(backward, costs.kinds[kind]);
  return ms;
}

class Searcher {
 public:
  Searcher(const PlanSpace& space, const PlanSearchOptions& options, PlanSimulator simulator, Plan plan)
      : space_(space),
        options_(options),
        simulator_(std::move(simulator)),
        plan_(std::move(plan)),
        end_(Clock::now() +
             std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(options.time_limit_s))) {}

  PlanSearchResult run() {
    const std::vector<Group> groups = sorted_groups();
    // What is quick to place comes first: the best of it rules out most of the rest.
    for (const Phase phase : {Phase::kInline, Phase::kBeside, Phase::kInterleaved}) {
      for (size_t g = 0; g < groups.size(); ++g) {
        run_group(groups[g], phase);
        if (options_.progress) report_progress(phase, g + 1, groups.size());
      }
    }
    finish();
    return std::move(result_);
  }

 private:
  /// Candidates with the same degrees, and what no one of them can be faster than.
  struct Group {
    Candidate degrees;
    double bound_ms = 0;
  };

  enum class Phase { kInline, kBeside, kInterleaved };

  static Phase phase_of(const Candidate& c) {
    if (c.vpp > 1) return Phase::kInterleaved;
    return c.encoders.is_inline ? Phase::kInline : Phase::kBeside;
  }

  void run_group(const Group& group, Phase phase) {
    std::vector<Candidate> candidates = enumerate_choices(group.degrees, plan_, space_);
    std::erase_if(candidates, [&](const Candidate& c) { return phase_of(c) != phase; });
    const auto count = static_cast<int64_t>(candidates.size());
    result_.counts.considered += count;
    if (count == 0) return;
    if (group.bound_ms == kInfinity) {
      result_.counts.over_memory += count;
      if (!result_.nearest) result_.nearest = candidates.back().text(plan_.modules.size() > 1);
    } else if (group.bound_ms >= limit_ms()) {
      result_.counts.slower_by_work += count;
    } else if (is_over()) {
      result_.counts.left += count;
      open_bound_ms_ = std::min(open_bound_ms_, group.bound_ms);
    } else {
      look_at(candidates);
    }
  }

  bool is_over() const { return Clock::now() >= end_ || (options_.stop != nullptr && options_.stop->load()); }

  /// Only what is faster than this is of interest: the slowest of the best that are asked for.
  double limit_ms() const {
    return result_.best.size() < std::max<size_t>(1, options_.top) ? kInfinity : result_.best.back().step_time_ms;
  }

  std::vector<Group> sorted_groups() {
    std::vector<Group> groups;
    for (const Candidate& degrees : enumerate_degrees(plan_, space_)) {
      Candidate lightest = degrees;
      // The most divided state, and no encoder in the pipeline: nothing in the group is lighter.
      lightest.zero = 3;
      lightest.encoders.is_inline = false;
      fill_plan(lightest, plan_);
      const auto microbatches = static_cast<double>(plan_.schedule.microbatches);
      const FluidChain fluid = fluid_chain(lightest, 0);
      groups.push_back({degrees, microbatches * least_bottleneck_ms(fluid)});
    }
    std::stable_sort(groups.begin(), groups.end(),
                     [](const Group& a, const Group& b) { return a.bound_ms < b.bound_ms; });
    return groups;
  }

  /// The pipeline of the candidate that plan_ is filled with, as a relaxation.
  FluidChain fluid_chain(const Candidate& c, double beside_bytes) {
    const Device& device = plan_.cluster.device;
    FluidChain fluid{.pp = c.pp,
                     .microbatches = plan_.schedule.microbatches,
                     .memory_bytes = (device.memory_gib - device.reserved_memory_gib) * kGiB - beside_bytes};
    for (const ModulePlan& module : plan_.modules) {
      if (!module.is_in_pipeline()) continue;
      const ModuleCosts& costs = simulator_.costs().module_costs(plan_, module, static_cast<double>(c.mbs));
      if (module.is_encoder()) {
        fluid.other_ms += module_ms(plan_, module, costs);
        continue;
      }
      add_layers(module, costs, fluid);
    }
    return fluid;
  }

  /// Where layers differ, the lightest stands for all, and what the others take more is work that weighs nothing.
  void add_layers(const ModulePlan& module, const ModuleCosts& costs, FluidChain& fluid) const {
    const ModuleBackward backward = backward_of(plan_, module.kind);
    constexpr double kRounding = 1 + kAllocatorRounding;
    fluid.layers = static_cast<double>(plan_.model.find(module.kind)->layers.size());
    fluid.layer_ms = fluid.forward_ms = fluid.static_bytes = fluid.activation_bytes = kInfinity;
    for (const BlockCost& block : costs.kinds) {
      fluid.layer_ms = std::min(fluid.layer_ms, block_ms(backward, block));
      fluid.forward_ms = std::min(fluid.forward_ms, block.time.forward.total_ms());
      const StateCost state =
          price_state(plan_, module, costs, block.parameters, {.forward_ms = 1e18, .backward_ms = 1e18});
      fluid.static_bytes = std::min(fluid.static_bytes, state.memory.total());
      fluid.activation_bytes = std::min(fluid.activation_bytes, backward.runs() ? kRounding * block.memory.saved : 0);
      fluid.recompute_saves_bytes =
          std::max(fluid.recompute_saves_bytes, kRounding * (block.memory.saved - block.memory.saved_full));
    }
    fluid.recompute_saves_bytes = std::min(fluid.recompute_saves_bytes, fluid.activation_bytes);
    double workspace = kInfinity;
    for (const BlockCost& block : costs.kinds) workspace = std::min(workspace, block.memory.workspace);
    fluid.memory_bytes -= kRounding * workspace;
    const StateCost head =
        price_state(plan_, module, costs, costs.exit.parameters, {.forward_ms = 1e18, .backward_ms = 1e18});
    fluid.last_rank_bytes = head.memory.total() + kRounding * std::max(0.0, costs.exit.memory.workspace - workspace) +
                            (backward.runs() ? kRounding * costs.exit.memory.saved : 0);
    fluid.other_ms += module_ms(plan_, module, costs) - fluid.layers * fluid.layer_ms;
  }

  /// What encoders beside the pipeline add to every rank, at least.
  struct Beside {
    double ms = 0;
    double bytes = 0;
  };
  Beside beside_of(const Candidate& c) {
    Beside beside;
    for (const ModulePlan& module : plan_.modules) {
      if (module.is_in_pipeline()) continue;
      const double samples = static_cast<double>(c.mbs * module.mbs_scale);
      const ModuleCosts& costs = simulator_.costs().module_costs(plan_, module, samples);
      const bool is_frozen = plan_.workload.is_frozen(module.kind);
      double ms = module_ms(plan_, module, costs);
      if (module.recompute_from_inputs && !is_frozen) ms += forward_ms(module, costs);
      // Every rank runs its share of the macro batches, the last one perhaps short.
      const double macros =
          static_cast<double>(plan_.schedule.microbatches * c.dp) / static_cast<double>(module.mbs_scale * module.dp);
      beside.ms += ms * macros;
      const bool keeps = !is_frozen && !module.recompute_from_inputs;
      if (module.form == EncoderForm::kBefore && keeps) {
        double saved = costs.entry.memory.saved + costs.exit.memory.saved;
        for (const size_t kind : plan_.model.find(module.kind)->layers) saved += costs.kinds[kind].memory.saved;
        beside.bytes += std::ceil(macros) * saved;
      }
    }
    return beside;
  }

  /// No placement of the candidate's layers is faster; plan_ is filled with the candidate.
  double bound_of(const Candidate& c) {
    const Beside beside = beside_of(c);
    const FluidChain fluid = fluid_chain(c, beside.bytes);
    // Every rank's chunks have the host's time around a forward and a backward.
    const double host_ms = c.pp > 1 ? 2 * static_cast<double>(c.vpp) * plan_.cluster.efficiency.action_us * 1e-3 : 0;
    const double bottleneck_ms = least_bottleneck_ms(fluid) + host_ms;
    const auto microbatches = static_cast<double>(plan_.schedule.microbatches);
    const double busy_ms = microbatches * bottleneck_ms;
    double bound = busy_ms;
    // In 1F1B and GPipe one microbatch passes all stages before and after the fullest has worked through the others.
    const bool is_plain = c.schedule == ScheduleName::k1f1b || c.schedule == ScheduleName::kGpipe;
    if (is_plain) {
      bound = fluid.layers * fluid.layer_ms + fluid.other_ms + static_cast<double>(c.pp) * host_ms +
              (microbatches - 1) * bottleneck_ms;
    }
    return c.encoders.form == EncoderForm::kFill ? std::max(bound, busy_ms + beside.ms) : bound + beside.ms;
  }

  double forward_ms(const ModulePlan& module, const ModuleCosts& costs) const {
    const Module& spec = *plan_.model.find(module.kind);
    double ms = costs.entry.time.forward.total_ms() + costs.exit.time.forward.total_ms();
    for (const size_t kind : spec.layers) ms += costs.kinds[kind].time.forward.total_ms();
    return ms;
  }

  void look_at(const std::vector<Candidate>& candidates) {
    free_.clear();
    std::vector<std::pair<double, const Candidate*>> by_bound;
    for (const Candidate& c : candidates) {
      fill_plan(c, plan_);
      by_bound.emplace_back(bound_of(c), &c);
    }
    std::stable_sort(by_bound.begin(), by_bound.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
    for (const auto& [bound_ms, candidate] : by_bound) {
      if (is_over()) {
        ++result_.counts.left;
        open_bound_ms_ = std::min(open_bound_ms_, bound_ms);
      } else if (bound_ms == kInfinity) {
        note_over_memory(*candidate);
      } else if (bound_ms >= limit_ms()) {
        ++result_.counts.slower_by_work;
      } else {
        evaluate(*candidate, bound_ms);
      }
    }
  }

  /// The best placement of a pipeline whose memory is not limited. Candidates of a group share it.
  struct FreePlacement {
    std::optional<BalancedPipeline> placement;
    double bound_ms = 0;
  };
  const FreePlacement& free_placement(const Candidate& c, const PlanChain& chain) {
    const auto key = std::tuple(c.schedule, c.vpp, c.encoders.is_inline);
    if (const auto found = free_.find(key); found != free_.end()) return found->second;
    BalanceCosts costs = chain.costs;
    costs.memory_gib = kInfinity;
    FreePlacement free;
    Result<BalanceBelow> solved = balance_below(costs, {.time_limit_s = placement_limit_s(c)});
    if (solved) {
      free.placement = std::move(solved->best);
      free.bound_ms = solved->bound_ms;
    }
    return free_.emplace(key, std::move(free)).first->second;
  }

  void evaluate(const Candidate& c, double work_bound_ms) {
    fill_plan(c, plan_);
    const PlanCosts& costs = simulator_.price(plan_);
    const double fixed_ms = fixed_part_ms(c) + tail_ms(c, costs);
    const PlanChain hopeful = chain_of(plan_, costs, ChainReading::kHopeful);
    if (hopeful.costs.memory_gib <= 1e-6) {
      note_over_memory(c);
      return;
    }
    const BalanceOptions below{.time_limit_s = placement_limit_s(c), .below_ms = limit_ms() - fixed_ms};
    const FreePlacement& free = free_placement(c, hopeful);
    if (free.bound_ms >= below.below_ms) {
      ++result_.counts.slower_by_placement;
      return;
    }
    if (free.placement) {
      // Fastest without a memory limit, so the fastest if it fits.
      apply_balance(hopeful, *free.placement, plan_);
      if (play(c, std::max(work_bound_ms, free.bound_ms + fixed_ms))) {
        ++result_.counts.evaluated;
        candidate_bounds_.push_back(std::max(work_bound_ms, free.bound_ms + fixed_ms));
        return;
      }
      fill_plan(c, plan_);
    }
    const Result<BalanceBelow> first = balance_below(hopeful.costs, below);
    if (!first) {
      // Too many ways to place its layers.
      ++result_.counts.left;
      open_bound_ms_ = std::min(open_bound_ms_, work_bound_ms);
      return;
    }
    if (!first->best) {
      if (first->bound_ms == kInfinity && below.below_ms == kInfinity) {
        note_over_memory(c);
      } else if (first->bound_ms == kInfinity) {
        ++result_.counts.slower_by_placement;
      } else {
        // Neither found nor excluded in time.
        ++result_.counts.evaluated;
        open_bound_ms_ = std::min(open_bound_ms_, std::max(work_bound_ms, first->bound_ms + fixed_ms));
      }
      return;
    }
    ++result_.counts.evaluated;
    const double bound_ms = std::max(work_bound_ms, first->bound_ms + fixed_ms);
    candidate_bounds_.push_back(bound_ms);
    apply_balance(hopeful, *first->best, plan_);
    if (play(c, bound_ms)) return;
    // It did not fit after all: again with as much less memory as it exceeded, and at last with all that the chain
    // leaves out taken at its most.
    BalanceCosts tighter = hopeful.costs;
    // Filling bubbles takes long to plan and needs room for its own sake, so it gets one more look, not several.
    const int attempts = c.encoders.form == EncoderForm::kFill ? 0 : kMostAttempts;
    for (int attempt = 0; attempt < attempts; ++attempt) {
      tighter.memory_gib -= last_excess_gib_ * (1 + 1e-6);
      if (tighter.memory_gib <= 0) break;
      fill_plan(c, plan_);
      const Result<BalanceBelow> next = balance_below(tighter, below);
      if (!next || !next->best) break;
      apply_balance(hopeful, *next->best, plan_);
      if (play(c, bound_ms)) return;
    }
    fill_plan(c, plan_);
    const PlanChain safe = chain_of(plan_, simulator_.price(plan_), ChainReading::kSafe);
    const Result<BalanceBelow> second = balance_below(safe.costs, {.time_limit_s = placement_limit_s(c)});
    if (!second || !second->best) {
      note_nearest(c);
      return;
    }
    apply_balance(safe, *second->best, plan_);
    if (!play(c, bound_ms)) note_nearest(c);
  }

  /// What a step takes besides the pipeline, whatever the placement: encoders that run before and after it.
  double fixed_part_ms(const Candidate& c) {
    return c.encoders.is_inline || c.encoders.form == EncoderForm::kFill ? 0 : beside_of(c).ms;
  }

  /// What follows the last backward whatever the placement: with one stage, all of reduction and update.
  double tail_ms(const Candidate& c, const PlanCosts& costs) const {
    if (c.pp > 1) return 0;
    double ms = costs.stages.front().update_ms;
    // The reduction may run beside the backward of encoders.
    if (costs.encoders.empty()) ms += costs.stages.front().reduce_ms;
    for (const PlanCosts::Encoder& encoder : costs.encoders)
      ms += encoder.stages.front().reduce_ms + encoder.stages.front().update_ms;
    return ms;
  }

  /// Simulates plan_ as it is filled; false when it does not fit.
  bool play(const Candidate& c, double bound_ms) {
    if (c.encoders.form == EncoderForm::kFill && !c.encoders.is_inline) return play_filled(c, bound_ms);
    return play_once(c, bound_ms);
  }

  bool play_once(const Candidate& c, double bound_ms) {
    const Result<Schedule> schedule = playable_schedule(plan_);
    if (!schedule) return false;
    MeanStep step = simulator_.run_mean(plan_, *schedule);
    double most = 0;
    for (const MemorySplit& row : step.memory) most = std::max(most, row.total());
    if (most > plan_.cluster.device.memory_gib * kGiB) {
      last_excess_gib_ = most / kGiB - plan_.cluster.device.memory_gib;
      return false;
    }
    keep(c, step, bound_ms);
    return true;
  }

  /// Whether pipeline and encoders fit with one macro batch alive: known without planning an order, which takes long.
  bool has_room_to_fill(const PlanCosts& costs, const Schedule& pipeline) {
    PlanCosts bare = costs;
    bare.encoders.clear();
    double most = 0;
    for (const MemorySplit& row : memory_of_rows(plan_, pipeline, bare)) most = std::max(most, row.total());
    for (const PlanCosts::Encoder& encoder : costs.encoders) {
      const StageCost& stage = encoder.stages.front();
      most += stage.state.total() + (plan_.workload.is_frozen(plan_.modules[static_cast<size_t>(encoder.module)].kind)
                                         ? encoder.output_bytes
                                         : stage.activation_bytes);
    }
    last_excess_gib_ = most / kGiB - plan_.cluster.device.memory_gib;
    return last_excess_gib_ <= 0;
  }

  /// The order inside the bubbles, for several numbers of live macro batches.
  bool play_filled(const Candidate& c, double bound_ms) {
    const PlanCosts& costs = simulator_.price(plan_);
    StageDurations durations;
    for (const StageCost& stage : costs.stages) {
      durations.forward_ms.push_back(stage.forward.compute_ms);
      durations.backward_input_ms.push_back(stage.recompute.compute_ms + stage.backward_input.compute_ms);
      durations.backward_weight_ms.push_back(stage.backward_weight.compute_ms);
    }
    const Result<std::vector<EncoderPlacement>> placements = encoder_placements(plan_);
    const Result<Schedule> pipeline =
        generate_schedule(c.schedule, {.pp = c.pp, .vpp = c.vpp, .microbatches = plan_.schedule.microbatches});
    if (!placements || !pipeline || !has_room_to_fill(costs, *pipeline)) return false;
    bool fits = false;
    int32_t least = 1;
    for (const EncoderPlacement& placement : *placements)
      least = std::max(least, least_live_macro_batches(*pipeline, placement.rows));
    for (const int32_t live : {least, 2 * least}) {
      std::vector<EncoderPlacement> encoders = *placements;
      for (size_t e = 0; e < encoders.size(); ++e) {
        const StageCost& stage = costs.encoders[e].stages.front();
        encoders[e].rows.live_macro_batches = live;
        encoders[e].forward_ms.assign(encoders[e].rows.groups.size(), stage.forward.compute_ms);
        encoders[e].backward_ms.assign(encoders[e].rows.groups.size(),
                                       stage.backward_input.compute_ms + stage.backward_weight.compute_ms);
      }
      const Result<Schedule> placed = place_encoders(*pipeline, encoders, durations);
      if (!placed) continue;
      bool is_first = true;
      for (ModulePlan& module : plan_.modules) {
        if (!module.is_encoder()) continue;
        module.live_macro_batches = live;
        module.actions = is_first ? stored_rows(*placed) : std::map<int64_t, std::vector<std::string>>{};
        is_first = false;
      }
      if (!play_once(c, bound_ms)) break;  // more alive at once need more memory still
      fits = true;
    }
    return fits;
  }

  void keep(const Candidate& c, const MeanStep& step, double bound_ms) {
    if (step.step_time_ms >= limit_ms()) return;
    FoundPlan found{.candidate = c, .plan = plan_, .step_time_ms = step.step_time_ms, .bound_ms = bound_ms};
    const auto place = std::upper_bound(result_.best.begin(), result_.best.end(), found.step_time_ms,
                                        [](double ms, const FoundPlan& other) { return ms < other.step_time_ms; });
    result_.best.insert(place, std::move(found));
    if (result_.best.size() > std::max<size_t>(1, options_.top)) result_.best.pop_back();
  }

  void note_over_memory(const Candidate& c) {
    ++result_.counts.over_memory;
    if (!result_.nearest) result_.nearest = c.text(plan_.modules.size() > 1);
  }

  void note_nearest(const Candidate& c) {
    if (last_excess_gib_ >= nearest_excess_gib_) return;
    nearest_excess_gib_ = last_excess_gib_;
    result_.nearest = fmt::format("{}: {:.2f} GiB too much", c.text(plan_.modules.size() > 1), last_excess_gib_);
  }

  void report_progress(Phase phase, size_t done, size_t all) {
    options_.progress(fmt::format(
        "part {} of 3, {} of {} groups, {} plans simulated, best {}", static_cast<int>(phase) + 1, done, all,
        result_.counts.evaluated,
        result_.best.empty() ? std::string("none") : fmt::format("{:.1f} ms", result_.best.front().step_time_ms)));
  }

  /// The least that anything which could still win might take.
  void finish() {
    if (result_.best.empty()) {
      result_.bound_ms = open_bound_ms_;
      return;
    }
    const double best_ms = result_.best.front().step_time_ms;
    double bound_ms = std::min(best_ms, open_bound_ms_);
    for (const double bound : candidate_bounds_) bound_ms = std::min(bound_ms, bound);
    result_.bound_ms = bound_ms;
    result_.is_optimal = bound_ms >= best_ms * (1 - 1e-9);
  }

  const PlanSpace& space_;
  const PlanSearchOptions& options_;
  PlanSimulator simulator_;
  Plan plan_;  // filled anew for every candidate
  Clock::time_point end_;
  PlanSearchResult result_;
  std::map<std::tuple<ScheduleName, int64_t, bool>, FreePlacement> free_;  // of the group that is looked at
  std::vector<double> candidate_bounds_;
  double open_bound_ms_ = kInfinity;
  double last_excess_gib_ = kInfinity;
  double nearest_excess_gib_ = kInfinity;
};

}  // namespace

Result<PlanSearchResult> search_plans(const Model& model, const Cluster& cluster, const Workload& workload,
                                      const PlanSpace& space, const PlanSearchOptions& options) {
  Plan plan = plan_without_settings(model, cluster, workload);
  if (options.profile != nullptr) apply_links(*options.profile, plan.cluster);
  WEFT_TRY(PlanSimulator simulator, PlanSimulator::create(plan, options.profile));
  return Searcher(space, options, std::move(simulator), std::move(plan)).run();
}

}  // namespace weft
