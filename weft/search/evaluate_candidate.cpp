#include "weft/search/evaluate_candidate.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <utility>

#include "weft/base/units.h"
#include "weft/exchange/target_limits.h"
#include "weft/meaning/plan_schedule.h"
#include "weft/meaning/tied_table.h"
#include "weft/schedule/lowering.h"
#include "weft/schedule/step_end.h"
#include "weft/search/woven_encoders.h"
#include "weft/simulate/fill_order.h"

namespace weft {
namespace {

/// How often a placement that turned out not to fit is sought again with less memory.
constexpr int kMostAttempts = 4;

/// The bench's plan, simulated.
struct Simulated {
  double step_time_ms = 0;
  double excess_gib = 0;  ///< what the fullest rank holds beyond the device's memory

  bool fits() const { return excess_gib <= 0; }
};

Simulated simulate(Workbench& bench, const Schedule& schedule) {
  const MeanStep step = bench.simulator().run_mean(bench.plan(), schedule);
  double most = 0;
  for (const MemorySplit& row : step.memory) most = std::max(most, row.total());
  return {.step_time_ms = step.step_time_ms, .excess_gib = most / kGiB - bench.plan().cluster.device.memory_gib};
}

/// The encoders beside the pipeline of the bench's plan.
struct BesideWorks {
  std::vector<EncoderWork> encoders;
  double entry_transfer_ms = 0;  ///< PlanStages::Beside::entry_transfer_ms
};

BesideWorks works_of(Workbench& bench) {
  PlanCosts costs;
  bench.simulator().costs().price_encoders(bench.plan(), costs);
  BesideWorks works;
  for (const PlanCosts::Encoder& encoder : costs.encoders)
    works.encoders.push_back(work_of(bench.plan(), encoder, LastMacro::kFullShares));
  if (!costs.encoders.empty())
    works.entry_transfer_ms = bridges_hold_up_ms(bench.plan(), *bench.pipeline_costs().back(), costs.bridges);
  return works;
}

/// One candidate on its way through the solver and the simulator. The bench is filled with it all the while.
class CandidateTrial {
 public:
  CandidateTrial(Workbench& bench, OpenFrame& frame, const Candidate& c, const EvaluateOptions& options,
                 const RecomputeSpace& recompute)
      : bench_(bench),
        frame_(frame),
        c_(c),
        options_(options),
        recompute_(recompute),
        is_separable_(c.is_separable()) {}

  Evaluation run() {
    bench_.fill(c_);
    const auto [works, entry_transfer_ms] = works_of(bench_);
    const int64_t live = is_separable_ ? 1 : least_live_of(bench_.plan(), shape().schedule);
    BesidePipeline beside = beside_pipeline(bench_.plan(), works, live);
    beside.ranks.entry_transfer_ms = entry_transfer_ms;
    double bound_ms = options_.bound_ms;
    // With nothing beside the pipeline, or where its placement is quickly found, that follows at once.
    const bool places_at_once = options_.is_probe || works.empty() || (options_.looks_near && is_separable_);
    if (options_.bounds.schedule && !places_at_once) {
      bound_ms = std::max(bound_ms, schedule_bound_ms(beside, works));
      if (bound_ms == kInfinity) return {.fate = Fate::kOverMemory};
      if (bound_ms >= options_.limit_ms) return {.fate = Fate::kSlowerBySchedule};
    }
    // Encoders that are woven in do not move the pipeline's layers: the placement is its own best.
    if (!is_separable_) std::fill(beside.ranks.backward_ms.begin(), beside.ranks.backward_ms.end(), 0.0);
    const double below_ms = options_.bounds.placement ? options_.limit_ms - beside.before_ms : kInfinity;
    if (!is_separable_ && options_.bounds.placement && least_busy_of_chunks_ms(works) >= options_.limit_ms)
      return {.fate = Fate::kSlowerByPlacement};
    // The rule for several chunks may happen to be quicker with less memory.
    PlacedBeside* known = c_.vpp == 1 && !bench_.space().target ? &frame_.bounds.placed_beside(bench_, c_) : nullptr;
    if (known != nullptr && options_.bounds.placement) {
      const double known_ms = known->least_ms(beside.ranks);
      if (known_ms == kInfinity) return {.fate = Fate::kOverMemory};
      if (known_ms >= below_ms) return {.fate = Fate::kSlowerByPlacement};
    }
    if (options_.looks_near && c_.vpp == 1) near_ms_ = frame_.bounds.mixed_ms(bench_, c_);
    PlanStages stages = stages_beside(beside);
    if (!stages.can_fit()) {
      if (known != nullptr) known->add(beside.ranks, kInfinity);
      return {.fate = Fate::kOverMemory};
    }
    const PlacedPipeline placed = place_pipeline(stages, shape(), limits(below_ms));
    if (known != nullptr && placed.is_exhausted)
      known->add(beside.ranks, placed.stages.empty() ? below_ms : placed.makespan_ms);
    if (placed.stages.empty()) {
      if (!placed.is_exhausted)
        return {.fate = Fate::kOpen, .open_bound_ms = std::max(bound_ms, beside.before_ms + placed.bound_ms)};
      return {.fate = below_ms == kInfinity ? Fate::kOverMemory : Fate::kSlowerByPlacement};
    }
    if (!is_separable_ && options_.bounds.placement &&
        busiest_rank_ms(bench_.plan(), placed, shape(), works) >= options_.limit_ms)
      return {.fate = Fate::kSlowerByPlacement};
    bound_ms = std::max(bound_ms, beside.before_ms + placed.proven_ms());
    stages.apply(placed.stages, bench_.plan());
    if (is_separable_) return simulate_separable(std::move(beside), bound_ms, below_ms);
    Evaluation evaluation = simulate_woven(live);
    // The placement is the pipeline's best only where that was proven.
    if (!placed.is_exhausted) evaluation.open_bound_ms = std::min(evaluation.open_bound_ms, bound_ms);
    return evaluation;
  }

 private:
  SolverShape& shape() { return bench_.shape_of(c_).solver(); }

  PlaceLimits limits(double below_ms) const {
    return {.below_ms = below_ms,
            .near_ms = near_ms_,
            .deadline = options_.deadline,
            .is_careful = !options_.is_probe,
            .moves_chunks = options_.moves_chunks};
  }

  PlanStages stages_beside(const BesidePipeline& beside) {
    PlanStages stages(bench_.plan(), bench_.pipeline_costs(), shape(), frame_.bounds.prices_of(bench_, c_),
                      beside.ranks, recompute_, /*has_memory_limit=*/true);
    if (options_.moves_chunks) stages.offer_few();
    return stages;
  }

  /// The pipeline's least makespan, with all of the memory, and what encoders add at its ends. Where their backwards
  /// follow, reductions hide behind them.
  double schedule_bound_ms(const BesidePipeline& beside, const std::vector<EncoderWork>& works) {
    const WovenEnds woven = is_separable_ ? WovenEnds{} : woven_ends(bench_.plan(), works);
    const double start_ms = std::max(beside.before_ms, woven.start_ms);
    const double end_ms = is_separable_
                              ? *std::max_element(beside.ranks.backward_ms.begin(), beside.ranks.backward_ms.end())
                              : woven.end_ms;
    const auto placed_ms = [&](bool hides_reductions) {
      return frame_.bounds.placed_ms(bench_, c_, hides_reductions, limits(options_.limit_ms));
    };
    double bound_ms = 0;
    if (end_ms == 0 || !is_separable_) bound_ms = start_ms + placed_ms(false);
    if (end_ms > 0) bound_ms = std::max(bound_ms, start_ms + placed_ms(true) + end_ms);
    return bound_ms;
  }

  /// Where the rule places several chunks a rank, encoders do not move blocks: the busiest rank in any way that it
  /// spreads them, without recomputation.
  double least_busy_of_chunks_ms(const std::vector<EncoderWork>& works) {
    if (c_.vpp == 1 || options_.moves_chunks || recompute_.everywhere) return 0;
    double least_ms = kInfinity;
    for (std::vector<double> busy_ms : frame_.bounds.chunk_loads_ms(bench_, c_)) {
      add_encoders(bench_.plan(), works, busy_ms);
      least_ms = std::min(least_ms, *std::max_element(busy_ms.begin(), busy_ms.end()));
    }
    return least_ms;
  }

  /// Takes the bench's plan, which fits, into the evaluation, with the order in bubbles where it has one. A bound of 0
  /// stands for the plan's own time.
  void take(double step_time_ms, double bound_ms, Evaluation& evaluation, const Schedule* order = nullptr) const {
    const bool is_proven = bound_ms == 0 || bound_ms >= step_time_ms * (1 - kPrecision);
    if (!is_proven) evaluation.open_bound_ms = std::min(evaluation.open_bound_ms, bound_ms);
    if (step_time_ms >= options_.limit_ms) return;
    FoundPlan found{.candidate = c_,
                    .plan = bench_.plan(),
                    .step_time_ms = step_time_ms,
                    .bound_ms = bound_ms > 0 ? std::min(bound_ms, step_time_ms) : step_time_ms};
    if (order != nullptr) store_order(*order, found.plan);
    if (const auto& target = bench_.space().target; target && !can_express(found.plan, *target)) {
      // Layers or recomputation that the system has no setting for: others of this candidate were not looked at.
      evaluation.open_bound_ms = std::min(evaluation.open_bound_ms, found.bound_ms);
      return;
    }
    if (options_.drawn == nullptr) {
      evaluation.found.push_back(std::move(found));
      return;
    }
    const DrawnLimits limits{.in_order_ms = options_.limit_ms,
                             .reassigned_ms = options_.reassigned_limit_ms,
                             .deadline = options_.has_plan ? options_.deadline : Deadline()};
    DrawnPrices prices = options_.drawn->price(found.plan, limits);
    if (prices.is_cut_short) evaluation.open_bound_ms = std::min(evaluation.open_bound_ms, found.bound_ms);
    for (DrawnPrice& price : prices.found) {
      FoundPlan& drawn = evaluation.found.emplace_back(found);
      drawn.candidate.balance = drawn.plan.balance = price.balance;
      drawn.step_time_ms = price.mean_ms;
      drawn.steps_ms = std::move(price.steps_ms);
    }
  }

  /// Nothing where the plan has no schedule.
  std::optional<Simulated> simulate_plan_of_bench() {
    const bool is_pipeline_alone = bench_.inline_encoders(c_) + 1 == 1u << bench_.num_encoders();
    if (is_pipeline_alone) return simulate(bench_, bench_.shape_of(c_).lowered());
    const Result<Schedule> schedule = playable_schedule(bench_.plan());
    if (!schedule) return std::nullopt;
    return simulate(bench_, *schedule);
  }

  /// Where the placement does not fit after all, others are tried with less memory.
  Evaluation simulate_separable(BesidePipeline beside, double bound_ms, double below_ms) {
    Evaluation evaluation{.fate = Fate::kSimulated};
    for (int attempt = 0;; ++attempt) {
      const std::optional<Simulated> simulated = simulate_plan_of_bench();
      if (!simulated) return evaluation;
      if (simulated->fits()) {
        take(simulated->step_time_ms, bound_ms, evaluation);
        return evaluation;
      }
      evaluation.open_bound_ms = bound_ms;
      if (attempt == kMostAttempts) return evaluation;
      for (BesideMemory& memory : beside.ranks.memory) memory.static_gib += simulated->excess_gib * (1 + 1e-6);
      bench_.fill(c_);
      PlanStages stages = stages_beside(beside);
      const PlacedPipeline placed = place_pipeline(stages, shape(), limits(below_ms));
      if (placed.stages.empty()) return evaluation;
      stages.apply(placed.stages, bench_.plan());
    }
  }

  /// Encoders are woven in for several numbers of live macro batches. The fastest is the candidate's time, as the space
  /// is defined.
  Evaluation simulate_woven(int64_t least_live) {
    Evaluation evaluation{.fate = Fate::kSimulated};
    for (const int64_t live : {least_live, 2 * least_live}) {
      bool fills = false, may_have_more = false;
      for (ModulePlan& module : bench_.plan().modules) {
        if (module.is_in_pipeline()) continue;
        module.actions.clear();
        const bool has_bound = module.form == EncoderForm::kFill || module.form == EncoderForm::kStream;
        if (has_bound) module.live_macro_batches = live;
        may_have_more |= has_bound;
        fills |= module.form == EncoderForm::kFill;
      }
      // More alive at once need more memory still.
      if (!(fills ? simulate_filled(evaluation) : simulate_streamed(evaluation)) || !may_have_more) break;
    }
    return evaluation;
  }

  /// False when it does not fit.
  bool simulate_streamed(Evaluation& evaluation) {
    const std::optional<Simulated> simulated = simulate_plan_of_bench();
    if (!simulated) return true;
    if (!simulated->fits()) return false;
    take(simulated->step_time_ms, 0, evaluation);
    return true;
  }

  /// Gives encoders an order in which they fill bubbles, from compute times alone. False when there is none that fits.
  bool simulate_filled(Evaluation& evaluation) {
    Result<std::vector<EncoderPlacement>> encoders = encoder_placements(bench_.plan());
    if (!encoders) return false;
    const PlanCosts& costs = bench_.simulator().price(bench_.plan());
    add_compute_durations(costs, *encoders);
    const Schedule* order =
        frame_.orders.order_of({.schedule = c_.schedule,
                                .shape = {.pp = c_.pp, .vpp = c_.vpp, .microbatches = bench_.microbatches(c_)},
                                .entry_stage = llm_entry_stage(bench_.plan()),
                                .durations = compute_durations(costs),
                                .encoders = *std::move(encoders)});
    if (order == nullptr) return false;
    const Result<Schedule> lowered = lower_schedule(with_step_end(*order));
    if (!lowered) return false;
    const Simulated simulated = simulate(bench_, *lowered);
    if (!simulated.fits()) return false;
    take(simulated.step_time_ms, 0, evaluation, order);
    return true;
  }

  static void store_order(const Schedule& order, Plan& plan) {
    for (ModulePlan& module : plan.modules) {
      if (module.is_in_pipeline() || module.form != EncoderForm::kFill) continue;
      module.actions = stored_rows(order);
      return;
    }
  }

  Workbench& bench_;
  OpenFrame& frame_;
  const Candidate& c_;
  const EvaluateOptions& options_;
  const RecomputeSpace& recompute_;
  bool is_separable_;
  double near_ms_ = 0;  // PlaceLimits::near_ms
};

/// What may be recomputed where all stages do the same, of each module what is quickest first.
std::vector<RecomputeSpace> same_everywhere(const Workbench& bench, const Candidate& c, bool is_probe) {
  const Module& llm = *bench.plan().model.find(ModuleKind::kLlm);
  const RecomputeSpace& space = bench.space().recompute;
  std::vector<RecomputeSpace::Everywhere> all = {{}};
  // Attention alone is a choice where layers are alike.
  if (space.allows_selective && llm.distinct_layers.size() == 1) all.push_back({.attention = true});
  if (space.allows_full) {
    const auto most = static_cast<int64_t>(llm.layers.size()) - c.pp * c.vpp + 1;
    const int64_t step = is_probe ? std::max<int64_t>(1, (most + 3) / 4) : 1;
    for (int64_t full = step; full < most + step; full += step) all.push_back({.full = std::min(full, most)});
  }
  std::vector<RecomputeSpace> spaces;
  for (const bool encoders : {false, true}) {
    if (encoders && (!space.allows_full || bench.inline_encoders(c) == 0)) continue;
    for (RecomputeSpace::Everywhere everywhere : all) {
      everywhere.encoders = encoders;
      spaces.push_back(space);
      spaces.back().everywhere = everywhere;
    }
  }
  return spaces;
}

/// The best of them.
Evaluation evaluate_everywhere(Workbench& bench, OpenFrame& frame, const Candidate& c, EvaluateOptions options) {
  Evaluation best{.fate = Fate::kOverMemory};
  for (const RecomputeSpace& recompute : same_everywhere(bench, c, options.is_probe)) {
    Evaluation evaluation = CandidateTrial(bench, frame, c, options, recompute).run();
    // What stages recompute is not part of this bound.
    if (evaluation.fate == Fate::kSlowerBySchedule) return best.found.empty() ? evaluation : best;
    if (best.fate != Fate::kSimulated && evaluation.fate != Fate::kOverMemory) best.fate = evaluation.fate;
    best.open_bound_ms = std::min(best.open_bound_ms, evaluation.open_bound_ms);
    for (FoundPlan& found : evaluation.found) {
      options.limit_ms = std::min(options.limit_ms, found.step_time_ms);
      best.found.push_back(std::move(found));
    }
  }
  return best;
}

}  // namespace

Evaluation evaluate_candidate(Workbench& bench, OpenFrame& frame, const Candidate& c, const EvaluateOptions& options) {
  RecomputeSpace recompute = bench.space().recompute;
  if (!bench.space().target) {
    if (options.recomputes_all && recompute.allows_full)
      recompute.everywhere = {.full = std::numeric_limits<int32_t>::max(), .attention = false, .encoders = true};
    return CandidateTrial(bench, frame, c, options, recompute).run();
  }
  bench.fill(c);
  if (limits_for(bench.plan(), *bench.space().target).recompute == RecomputeForm::kSameEverywhere)
    return evaluate_everywhere(bench, frame, c, options);
  recompute.allows_selective = false;
  return CandidateTrial(bench, frame, c, options, recompute).run();
}

}  // namespace weft
