#include "weft/search/plan_search.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>
#include <map>
#include <memory>
#include <tuple>
#include <utility>

#include <fmt/format.h>

#include "weft/base/check.h"
#include "weft/base/units.h"
#include "weft/plan/plan_schedule.h"
#include "weft/schedule/encoder_forms.h"
#include "weft/schedule/lowering.h"
#include "weft/schedule/step_end.h"
#include "weft/search/chunk_placer.h"
#include "weft/search/enumerate.h"
#include "weft/search/plan_beside.h"
#include "weft/search/plan_bounds.h"
#include "weft/search/plan_stages.h"
#include "weft/search/precision.h"
#include "weft/simulate/plan_simulator.h"

namespace weft {
namespace {

using Clock = std::chrono::steady_clock;

/// Labels that a walk keeps at a block before a placement is left unproven: nearly always few are enough.
constexpr size_t kMostLabels = 256;
constexpr size_t kLabelsOfProbes = 4;
/// Simulations of a local search between two walks.
constexpr int64_t kMostLocal = 32;
/// How often a placement that turned out not to fit is sought again with less memory.
constexpr int kMostAttempts = 4;
/// Pairs of stage and microbatch of all the shapes that are kept, about half a kilobyte each.
constexpr int64_t kMostKept = 1 << 21;

/// Candidates with the same degrees of the llm, and what no one of them can be faster than.
struct Frame {
  Candidate degrees;
  int64_t size = 0;
  double bound_ms = 0;
  bool is_bounded = false;
  bool is_refined = false;  ///< the bound knows what the schedules leave idle
};

/// A combination of encoder choices in a frame.
struct Combination {
  std::array<size_t, kMostEncoders> choices{};
  double beside_gib = 0;  ///< what encoders hold on every rank
  double first_ms = 0;    ///< what the pipeline waits for, but not all of its ranks do
  double before_ms = 0;   ///< what runs on all ranks before the pipeline
  double after_ms = 0;    ///< and after it
  double within_ms = 0;   ///< what runs on all its ranks while it does
  double partly_ms = 0;   ///< what runs on some of its ranks, spread over all
  double own_ms = 0;      ///< what encoders do on ranks of their own

  double least_ms = 0;  ///< with the ZeRO stage that is best

  /// With a pipeline that takes at least so long, keeps its busiest rank busy for so long, and all ranks on average.
  double bound_ms(double pipeline_ms, double busy_ms, double even_ms) const {
    const double within = std::max(busy_ms, even_ms + partly_ms) + within_ms;
    return std::max(own_ms, after_ms + std::max(std::max(before_ms, first_ms) + pipeline_ms, before_ms + within));
  }
};

/// A pipeline schedule with all that does not depend on times.
struct PlanShape {
  explicit PlanShape(Schedule whole) : lowered(*lower_schedule(whole)), solver(std::move(whole)) {}

  Schedule lowered;
  SolverShape solver;
};

class Searcher {
 public:
  Searcher(const PlanSpace& space, const PlanSearchOptions& options, PlanSimulator simulator, Plan plan)
      : space_(space),
        options_(options),
        simulator_(std::move(simulator)),
        plan_(std::move(plan)),
        num_encoders_(plan_.modules.size() - 1),
        end_(Clock::now() +
             std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(options.time_limit_s))) {}

  PlanSearchResult run() {
    std::vector<Frame> frames = list_frames();
    probe(frames);
    for (size_t done = 0; done < frames.size(); ++done) {
      if (is_over()) {
        // Ruled out by what is known of them, or left.
        run_frame(frames[done]);
        continue;
      }
      run_frame(next_frame(frames, done));
      if (options_.progress) report_progress(done + 1, frames.size());
    }
    finish();
    return std::move(result_);
  }

 private:
  bool is_over() const {
    if (options_.first_only && !(result_.best.empty() && probed_.empty())) return true;
    return Clock::now() >= end_ || (options_.stop != nullptr && options_.stop->load());
  }

  /// Only what is faster than this is of interest: the slowest of the best that are asked for.
  double limit_ms() const {
    const bool has_all = result_.best.size() >= std::max<size_t>(1, options_.top);
    return std::min(probed_ms_, has_all ? result_.best.back().step_time_ms * (1 - kPrecision) : kInfinity);
  }

  // ---- Frames ----

  std::vector<Frame> list_frames() {
    std::vector<Frame> frames;
    for (const Candidate& degrees : enumerate_frames(plan_, space_)) {
      const int64_t size = choices_of(degrees, plan_, space_).size();
      if (size > 0) frames.push_back({.degrees = degrees, .size = size});
    }
    for (Frame& frame : frames) {
      result_.counts.considered += frame.size;
      // Without time, nothing is known of a frame.
      if (!is_over()) frame.bound_ms = frame_bound(frame.degrees);
      frame.is_bounded = frame.bound_ms > 0;
    }
    std::stable_sort(frames.begin(), frames.end(), [](const Frame& a, const Frame& b) {
      return a.is_bounded != b.is_bounded ? a.is_bounded : a.bound_ms < b.bound_ms;
    });
    return frames;
  }

  /// A candidate of a frame with encoders beside or inside the pipeline.
  static Candidate with_inline(const Candidate& degrees, unsigned inline_mask) {
    Candidate c = degrees;
    for (size_t e = 0; e < kMostEncoders; ++e) {
      if (c.encoders[e].placement == ModulePlacement::kDisjoint) continue;
      c.encoders[e] = {};
      if ((inline_mask >> e & 1u) == 0) c.encoders[e].placement = ModulePlacement::kColocated;
    }
    return c;
  }

  /// Costs of the modules that lie in the pipeline; the others' are not asked for.
  const ModuleCostsOf& pipeline_modules() {
    modules_.assign(plan_.modules.size(), nullptr);
    for (size_t m = 0; m < plan_.modules.size(); ++m) {
      if (plan_.modules[m].is_in_pipeline())
        modules_[m] =
            &simulator_.costs().module_costs(plan_, plan_.modules[m], static_cast<double>(plan_.schedule.mbs));
    }
    return modules_;
  }

  /// The work of llm and encoders, spread evenly.
  double frame_bound(const Candidate& degrees) {
    const unsigned all_inline = (1u << num_encoders_) - 1;
    fill_plan(with_inline(degrees, all_inline), plan_);
    const auto microbatches = static_cast<double>(plan_.schedule.microbatches);
    const ModuleCostsOf inside = pipeline_modules();
    std::array<double, kMostEncoders> inline_ms{};
    for (size_t m = 0, e = 0; m < plan_.modules.size(); ++m) {
      if (!plan_.modules[m].is_encoder()) continue;
      if (plan_.modules[m].is_in_pipeline())
        inline_ms[e] = microbatches * module_ms(plan_, plan_.modules[m], *inside[m]);
      ++e;
    }
    fill_plan(with_inline(degrees, 0), plan_);
    const ModuleCostsOf& llm = pipeline_modules();
    double work_ms = microbatches * module_ms(plan_, plan_.llm(), *llm.back());
    const double samples_a_row = static_cast<double>(plan_.workload.global_batch_samples * degrees.pp) /
                                 static_cast<double>(plan_.llm().ranks.size());
    for (size_t e = 0; e < num_encoders_; ++e) {
      if (degrees.encoders[e].placement == ModulePlacement::kDisjoint) continue;
      work_ms += std::min(inline_ms[e], least_encoder_of(degrees, e) * samples_a_row);
    }
    return work_ms / static_cast<double>(degrees.pp);
  }

  double least_encoder_of(const Candidate& degrees, size_t encoder) {
    const auto key = std::tuple(encoder, degrees.mbs, degrees.tp, degrees.pp > 1);
    const auto found = least_.find(key);
    if (found != least_.end()) return found->second;
    Candidate c = degrees;
    for (EncoderChoice& choice : c.encoders) choice = {};
    Plan scratch = plan_;
    return least_.emplace(key, least_encoder_ms(c, encoder, space_, scratch, simulator_)).first->second;
  }

  /// The frame with the least bound from `begin` on, moved there. Bounds are refined as they come to the front: most
  /// frames are ruled out before.
  const Frame& next_frame(std::vector<Frame>& frames, size_t begin) {
    const auto is_later = [](const Frame& a, const Frame& b) { return a.bound_ms > b.bound_ms; };
    // Sorted but for the front, whose bound may have grown.
    while (true) {
      Frame& front = frames[begin];
      if (front.is_refined || front.bound_ms >= limit_ms() || front.bound_ms == kInfinity) return front;
      front.bound_ms = std::max(front.bound_ms, refined_bound(front.degrees));
      front.is_refined = true;
      size_t place = begin;
      while (place + 1 < frames.size() && is_later(frames[place], frames[place + 1])) {
        std::swap(frames[place], frames[place + 1]);
        ++place;
      }
    }
  }

  /// What the llm alone takes, with the schedule that leaves the least idle and with the ZeRO stage that needs the
  /// least of communication and recomputation.
  double refined_bound(const Candidate& degrees) {
    Candidate c = with_inline(degrees, 0);
    mixed_.clear();
    opened_.reset();
    const FrameChoices choices = choices_of(degrees, plan_, space_);
    double least_busy = kInfinity;
    for (const ZeroChoice& zero : choices.zeros) {
      c.zero = zero.zero;
      c.zero_keep_gathered = zero.keeps_gathered;
      fill_plan(c, plan_);
      least_busy = std::min(least_busy, least_busy_ms(plan_, fluid_chain(plan_, pipeline_modules())));
    }
    if (least_busy == kInfinity) return kInfinity;
    // The least of any ZeRO stage: without their communication.
    c.zero = 0;
    c.zero_keep_gathered = false;
    double least_mixed = kInfinity;
    for (const ScheduleChoice& schedule : choices.schedules) {
      c.schedule = schedule.name;
      c.vpp = schedule.vpp;
      fill_plan(c, plan_);
      const ModuleCostsOf& modules = pipeline_modules();
      const FreeWork llm = free_work(plan_, plan_.llm(), *modules.back());
      // Transfers behind inline encoders may be smaller than the llm's.
      StageTimes rest = every_stage(plan_, modules);
      rest[kTransferWork] = 0;
      SolverShape& shape = shape_of(c).solver;
      least_mixed = std::min(least_mixed, least_makespan_ms(shape.schedule, shape.mix, std::span(&llm, 1), rest));
    }
    return std::max(least_mixed, least_busy * static_cast<double>(plan_.schedule.microbatches));
  }

  /// A good plan early rules out most of the rest: the most promising candidate of each of the best frames.
  void probe(std::vector<Frame>& frames) {
    constexpr size_t kMostProbes = 24;
    constexpr size_t kFewestProbes = 4;
    constexpr int kMostTried = 24, kMostFound = 6;
    is_probing_ = true;
    for (size_t f = 0; f < std::min(kMostProbes, frames.size()); ++f) {
      // Something is better than nothing, however short the time.
      if (is_over() && (f >= kFewestProbes || !result_.best.empty())) break;
      const Frame frame = next_frame(frames, f);
      if (frame.bound_ms >= limit_ms()) break;
      open_frame(frame);
      int num_tried = 0;
      int num_found = 0;
      for (const Combination& combination : combinations_) {
        if (combination.least_ms >= limit_ms() || num_found == kMostFound || num_tried == kMostTried) break;
        Candidate c = candidate_of(frame, combination);
        if (!is_separable(c)) continue;
        ++num_tried;
        bool has_found = false;
        for (const ScheduleChoice& schedule : choices_.schedules) {
          if (schedule.vpp > 1) continue;
          c.schedule = schedule.name;
          c.vpp = 1;
          for (const ZeroChoice& zero : choices_.zeros) {
            c.zero = zero.zero;
            c.zero_keep_gathered = zero.keeps_gathered;
            has_found |= evaluate(c, combination.least_ms);
          }
        }
        num_found += has_found ? 1 : 0;
      }
    }
    is_probing_ = false;
    opened_.reset();
    open_bound_ms_ = kInfinity;
    // They are met again, and then with all that is known about them.
    // A little more than they take, because solvers look for what is better than a limit by more than rounding.
    if (limit_ms() < kInfinity) probed_ms_ = result_.best.back().step_time_ms * (1 + 4 * kPrecision);
    probed_ = std::exchange(result_.best, {});
  }

  void run_frame(const Frame& frame) {
    SearchCounts& counts = result_.counts;
    if (frame.bound_ms == kInfinity) {
      counts.over_memory += frame.size;
      return;
    }
    if (options_.bounds.work && frame.bound_ms >= limit_ms()) {
      counts.slower_by_work += frame.size;
      return;
    }
    if (is_over()) {
      leave(frame.size, frame.bound_ms);
      return;
    }
    open_frame(frame);
    const auto per_combination = static_cast<int64_t>(choices_.schedules.size() * choices_.zeros.size());
    for (const Combination& combination : combinations_) {
      if (combination.least_ms == kInfinity) {
        counts.over_memory += per_combination;
      } else if (options_.bounds.work && combination.least_ms >= limit_ms()) {
        counts.slower_by_work += per_combination;
      } else if (is_over()) {
        leave(per_combination, combination.least_ms);
      } else {
        run_combination(frame, combination);
      }
    }
  }

  void leave(int64_t count, double bound_ms) {
    result_.counts.left += count;
    open_bound_ms_ = std::min(open_bound_ms_, bound_ms);
  }

  // ---- Encoders ----

  Candidate candidate_of(const Frame& frame, const Combination& combination) const {
    Candidate c = frame.degrees;
    for (size_t e = 0; e < kMostEncoders; ++e) c.encoders[e] = choices_.encoders[e][combination.choices[e]];
    return c;
  }

  /// Lists what a frame leaves open, the combinations of encoders by their bounds.
  void open_frame(const Frame& frame) {
    if (opened_ == frame.degrees) return;
    opened_ = frame.degrees;
    free_.clear();
    woven_.clear();
    mixed_.clear();
    choices_ = choices_of(frame.degrees, plan_, space_);
    std::array<std::vector<EncoderWork>, kMostEncoders> works;
    for (size_t e = 0; e < num_encoders_; ++e) {
      for (const EncoderChoice& choice : choices_.encoders[e]) {
        works[e].emplace_back();
        if (!choice.is_inline()) works[e].back() = encoder_work(frame.degrees, e, choice);
      }
    }
    for (size_t e = num_encoders_; e < kMostEncoders; ++e) works[e].emplace_back();
    for (auto& fluids : fluids_) fluids.clear();
    const auto microbatches = static_cast<double>(frame.degrees.microbatches(plan_.workload.global_batch_samples));
    std::array<double, 1 << kMostEncoders> least_busy, least_even;
    combinations_.clear();
    for (size_t i = 0; i < choices_.encoders[0].size(); ++i) {
      for (size_t j = 0; j < choices_.encoders[1].size(); ++j) {
        Combination combination{.choices = {i, j}};
        const unsigned mask = mask_of(candidate_of(frame, combination));
        if (fluids_[mask].empty()) {
          least_busy[mask] = least_even[mask] = kInfinity;
          Candidate c = with_inline(frame.degrees, mask);
          for (const ZeroChoice& zero : choices_.zeros) {
            c.zero = zero.zero;
            c.zero_keep_gathered = zero.keeps_gathered;
            fill_plan(c, plan_);
            fluids_[mask].push_back(fluid_chain(plan_, pipeline_modules()));
            least_busy[mask] = std::min(least_busy[mask], least_busy_ms(plan_, fluids_[mask].back()));
            least_even[mask] = std::min(least_even[mask], fluids_[mask].back().even_ms());
          }
        }
        add_bounds(frame, works, combination);
        combination.least_ms =
            combination.bound_ms(0, microbatches * least_busy[mask], microbatches * least_even[mask]);
        combinations_.push_back(combination);
      }
    }
    std::stable_sort(combinations_.begin(), combinations_.end(),
                     [](const Combination& a, const Combination& b) { return a.least_ms < b.least_ms; });
  }

  /// Which encoders lie in the pipeline.
  unsigned mask_of(const Candidate& c) const {
    unsigned mask = 0;
    for (size_t e = 0; e < num_encoders_; ++e) mask |= c.encoders[e].is_inline() ? 1u << e : 0u;
    return mask;
  }

  EncoderWork encoder_work(const Candidate& degrees, size_t encoder, const EncoderChoice& choice) {
    Candidate c = with_inline(degrees, 0);
    c.zero = degrees.dp * degrees.cp > 1 ? 1 : 0;
    c.encoders[encoder] = choice;
    fill_plan(c, plan_);
    PlanCosts::Encoder priced;
    size_t seen = 0;
    for (size_t m = 0; m < plan_.modules.size(); ++m) {
      if (!plan_.modules[m].is_encoder() || seen++ != encoder) continue;
      const ModulePlan& module = plan_.modules[m];
      const ModuleCosts& costs =
          simulator_.costs().module_costs(plan_, module, static_cast<double>(plan_.schedule.mbs * module.mbs_scale));
      priced.module = static_cast<int32_t>(m);
      price_encoder(plan_, priced.module, costs, priced.stages);
    }
    return work_of(plan_, priced);
  }

  void add_bounds(const Frame& frame, const std::array<std::vector<EncoderWork>, kMostEncoders>& works,
                  Combination& combination) const {
    for (size_t e = 0; e < num_encoders_; ++e) {
      const EncoderChoice& choice = choices_.encoders[e][combination.choices[e]];
      const EncoderWork& work = works[e][combination.choices[e]];
      if (choice.is_inline()) continue;
      if (choice.placement == ModulePlacement::kDisjoint) {
        combination.own_ms = std::max(combination.own_ms, work.forwards_ms() + work.backwards_ms());
      } else if (choice.fills()) {
        combination.within_ms += work.forwards_ms() + work.backwards_ms();
        combination.beside_gib += work.static_gib + work.held_gib;
      } else if (choice.placement == ModulePlacement::kPartial) {
        // Other ranks wait for its first macro batch only.
        combination.first_ms = std::max(combination.first_ms, work.first_forward_ms());
        combination.partly_ms += (work.forwards_ms() + work.backwards_ms()) * static_cast<double>(choice.stages) /
                                 static_cast<double>(frame.degrees.pp);
      } else {
        combination.before_ms += work.forwards_ms();
        combination.after_ms += work.backwards_ms();
        combination.beside_gib += work.static_gib + std::ceil(work.macros) * work.held_gib;
      }
    }
  }

  /// Whether the step is the pipeline's time and the encoders', one after the other.
  static bool is_separable(const Candidate& c) {
    return std::all_of(c.encoders.begin(), c.encoders.end(), [](const EncoderChoice& e) {
      return e.is_inline() || (e.placement == ModulePlacement::kColocated && e.form == EncoderForm::kBefore);
    });
  }

  void run_combination(const Frame& frame, const Combination& combination) {
    Candidate c = candidate_of(frame, combination);
    SearchCounts& counts = result_.counts;
    const auto num_schedules = static_cast<int64_t>(choices_.schedules.size());
    for (size_t z = 0; z < choices_.zeros.size(); ++z) {
      c.zero = choices_.zeros[z].zero;
      c.zero_keep_gathered = choices_.zeros[z].keeps_gathered;
      c.schedule = choices_.schedules.front().name;
      c.vpp = 1;
      fill_plan(c, plan_);
      const auto microbatches = static_cast<double>(plan_.schedule.microbatches);
      const FluidChain& fluid = fluids_[mask_of(c)][z];
      double busy_ms = microbatches *
                       least_busy_ms(plan_, fluid, {.beside_gib = combination.beside_gib, .in_flight = held_by_all(c)});
      double even_ms = microbatches * fluid.even_ms();
      if (busy_ms == kInfinity) {
        counts.over_memory += num_schedules;
        continue;
      }
      if (options_.bounds.work && combination.bound_ms(0, busy_ms, even_ms) >= limit_ms()) {
        counts.slower_by_work += num_schedules;
        continue;
      }
      if (!options_.bounds.work) busy_ms = even_ms = 0;
      for (const ScheduleChoice& schedule : choices_.schedules) {
        c.schedule = schedule.name;
        c.vpp = schedule.vpp;
        const double bound_ms = combination.bound_ms(options_.bounds.schedule ? mixed_bound(c) : 0,
                                                     busy_with_chunks(c, combination, z, busy_ms), even_ms);
        if (bound_ms == kInfinity) {
          ++counts.over_memory;
        } else if (options_.bounds.schedule && bound_ms >= limit_ms()) {
          ++counts.slower_by_schedule;
        } else if (is_over()) {
          leave(1, bound_ms);
        } else {
          evaluate(c, bound_ms);
        }
      }
    }
  }

  /// What ranks hold in every schedule that the frame leaves open; nothing where that is what one chunk a rank holds.
  /// With chunks that come back, some layers of the first rank are held as little as the last rank's.
  std::span<const double> held_by_all(const Candidate& c) {
    const bool comes_back = std::any_of(choices_.schedules.begin(), choices_.schedules.end(),
                                        [](const ScheduleChoice& s) { return s.name == ScheduleName::kZbV; });
    if (!comes_back) return {};
    ones_.assign(static_cast<size_t>(c.pp), 1.0);
    return ones_;
  }

  /// Several chunks a rank hold more microbatches than one would.
  double busy_with_chunks(const Candidate& c, const Combination& combination, size_t zero, double busy_ms) {
    if (c.vpp == 1 || !options_.bounds.work) return busy_ms;
    const double ms = least_busy_ms(
        plan_, fluids_[mask_of(c)][zero],
        {.beside_gib = combination.beside_gib, .chunks = c.vpp, .in_flight = shape_of(c).solver.held_anyway});
    return std::max(busy_ms, static_cast<double>(plan_.schedule.microbatches) * ms);
  }

  /// No placement of the candidate's pipeline is faster, as a mix of the schedule's paths shows. Candidates of a frame
  /// share it.
  double mixed_bound(const Candidate& c) {
    const auto key = std::tuple(mask_of(c), c.schedule, c.vpp, c.zero, c.zero_keep_gathered);
    if (const auto found = mixed_.find(key); found != mixed_.end()) return found->second;
    fill_plan(c, plan_);
    const ModuleCostsOf& modules = pipeline_modules();
    std::vector<FreeWork> works;
    for (size_t m = 0; m < modules.size(); ++m) {
      if (modules[m] != nullptr) works.push_back(free_work(plan_, plan_.modules[m], *modules[m]));
    }
    SolverShape& shape = shape_of(c).solver;
    const StageTimes rest = every_stage(plan_, modules);
    const double bound = least_makespan_ms(shape.schedule, shape.graph, shape.mix, works, rest);
    return mixed_.emplace(key, bound).first->second;
  }

  // ---- Placement ----

  PlanShape& shape_of(const Candidate& c) {
    const int64_t microbatches = c.microbatches(plan_.workload.global_batch_samples);
    const auto key = std::tuple(c.schedule, c.pp, c.vpp, microbatches);
    if (const auto found = shapes_.find(key); found != shapes_.end()) return *found->second;
    // Shapes of many microbatches are large: old ones make room, and are made again where they are needed.
    const int64_t size = c.pp * c.vpp * microbatches;
    if (size_of_shapes_ + size > kMostKept) {
      shapes_.clear();
      size_of_shapes_ = 0;
    }
    size_of_shapes_ += size;
    Result<Schedule> schedule = generate_schedule(c.schedule, {.pp = c.pp, .vpp = c.vpp, .microbatches = microbatches});
    WEFT_CHECK(schedule.ok(), "a candidate has no schedule: {}", schedule.error().message());
    return *shapes_.emplace(key, std::make_unique<PlanShape>(with_step_end(*std::move(schedule)))).first->second;
  }

  SolverEffort effort_of() const {
    SolverEffort effort;
    effort.time_limit = std::max<Clock::duration>(end_ - effort.start, std::chrono::milliseconds(1));
    effort.most_labels = is_probing_ ? kLabelsOfProbes : kMostLabels;
    effort.most_local = kMostLocal;
    return effort;
  }

  static PlanStages::Beside nothing_beside(int64_t pp) {
    const auto ranks = static_cast<size_t>(pp);
    return {.memory = std::vector<BesideMemory>(ranks),
            .update_ms = std::vector<double>(ranks, 0),
            .backward_ms = std::vector<double>(ranks, 0)};
  }

  /// No placement of the pipeline alone is faster, whatever the memory; plan_ is filled with the candidate. Candidates
  /// of a frame share it.
  double free_bound(const Candidate& c, bool has_encoder_backward) {
    const auto key = std::tuple(mask_of(c), c.schedule, c.vpp, c.zero, c.zero_keep_gathered, has_encoder_backward);
    if (const auto found = free_.find(key); found != free_.end()) return found->second;
    PlanStages::Beside beside = nothing_beside(c.pp);
    // Where encoders' backwards follow, reductions hide behind them.
    RecomputeSpace none{.allows_full = false, .allows_selective = false};
    SolverShape& shape = shape_of(c).solver;
    PlanStages stages(plan_, pipeline_modules(), shape, std::move(beside), none, /*has_memory_limit=*/false);
    stages.ignore_reductions(has_encoder_backward);
    const double below_ms = limit_ms();
    const double bound = solve(c, shape, stages, below_ms).bound_ms;
    return free_.emplace(key, bound).first->second;
  }

  /// What is known about a candidate's pipeline below a makespan.
  struct Solved {
    std::vector<StageOption> stages;  ///< empty where nothing was found
    double makespan_ms = kInfinity;
    double bound_ms = 0;  ///< no placement is faster
    bool is_exhausted = false;
  };
  Solved solve(const Candidate& c, SolverShape& shape, PlanStages& stages, double below_ms) {
    Solved solved;
    if (c.vpp > 1) {
      ChunkPlacer placer(stages, shape, stages.limits_gib());
      for (int32_t fewer = 0; fewer <= ChunkPlacer::kMostFewer; ++fewer) {
        std::vector<StageOption> placed = placer.place(fewer);
        if (placed.empty()) continue;
        std::vector<StageTimes> times;
        for (const StageOption& option : placed) times.push_back(option.times());
        const double makespan_ms = shape.graph.makespan_ms(times);
        if (makespan_ms >= std::min(below_ms, solved.makespan_ms)) continue;
        solved.makespan_ms = makespan_ms;
        solved.stages = std::move(placed);
      }
      solved.bound_ms = std::min(below_ms, solved.makespan_ms);
      solved.is_exhausted = true;
      return solved;
    }
    const Result<StageOptions> options =
        StageOptions::make(stages, {.below_ms = below_ms, .microbatches = plan_.schedule.microbatches});
    if (!options) return solved;
    const SolvedChain chain = solve_chain(shape, *options, stages.limits_gib(), below_ms, effort_of());
    for (const size_t option : chain.best) solved.stages.push_back((*options)[option]);
    solved.makespan_ms = chain.best_ms;
    solved.bound_ms = chain.bound_ms;
    solved.is_exhausted = chain.is_exhausted;
    return solved;
  }

  /// Places and simulates a candidate that may be below the limit; whether one was found.
  bool evaluate(const Candidate& c, double bound_ms) {
    SearchCounts ignored;
    SearchCounts& counts = is_probing_ ? ignored : result_.counts;
    fill_plan(c, plan_);
    const PlanCosts& costs = simulator_.price(plan_);
    std::vector<EncoderWork> works;
    for (const PlanCosts::Encoder& encoder : costs.encoders) works.push_back(work_of(plan_, encoder));
    const bool is_separate = is_separable(c);
    int64_t live = 1;
    if (!is_separate) live = least_live(c);
    BesidePipeline beside = beside_pipeline(plan_, works, live);
    double backwards_ms = 0;
    for (const double ms : beside.ranks.backward_ms) backwards_ms = std::max(backwards_ms, ms);
    if (!is_separate) {
      // The placement is the pipeline's own best.
      std::fill(beside.ranks.backward_ms.begin(), beside.ranks.backward_ms.end(), 0.0);
    }
    if (options_.bounds.schedule && !is_probing_ && c.vpp == 1) {
      const Woven woven = is_separate ? Woven{} : woven_ends(works);
      const double start_ms = std::max(beside.before_ms, woven.start_ms);
      const double end_ms = is_separate ? backwards_ms : woven.end_ms;
      if (end_ms == 0 || !is_separate) bound_ms = std::max(bound_ms, start_ms + free_bound(c, false));
      if (end_ms > 0) bound_ms = std::max(bound_ms, start_ms + free_bound(c, true) + end_ms);
      if (bound_ms >= limit_ms()) {
        ++counts.slower_by_schedule;
        return false;
      }
    }
    SolverShape& shape = shape_of(c).solver;
    PlanStages stages(plan_, pipeline_modules(), shape, beside.ranks, space_.recompute, /*has_memory_limit=*/true);
    const double below_ms = options_.bounds.placement ? limit_ms() - beside.before_ms : kInfinity;
    if (!stages.can_fit()) {
      ++counts.over_memory;
      return false;
    }
    Solved found = solve(c, shape, stages, below_ms);
    if (found.stages.empty()) {
      if (!found.is_exhausted) {
        // Neither found nor excluded.
        ++counts.evaluated;
        note_open(std::max(bound_ms, beside.before_ms + found.bound_ms));
      } else if (below_ms == kInfinity) {
        ++counts.over_memory;
      } else {
        ++counts.slower_by_placement;
      }
      return false;
    }
    if (!is_separate && options_.bounds.placement && busy_ms(found, shape, works) >= limit_ms()) {
      ++counts.slower_by_placement;
      return false;
    }
    ++counts.evaluated;
    const double placed_bound_ms =
        std::max(bound_ms, beside.before_ms + (found.is_exhausted ? found.makespan_ms : found.bound_ms));
    stages.apply(found.stages, plan_);
    if (is_separate) {
      play_separable(c, beside, placed_bound_ms, below_ms);
    } else {
      // The placement is the pipeline's best only where that was proven.
      if (!found.is_exhausted) note_open(placed_bound_ms);
      play_woven(c, live);
    }
    return true;
  }

  /// What the busiest rank of a placed pipeline has to do, with its encoders, whatever the order.
  double busy_ms(const Solved& found, const SolverShape& shape, const std::vector<EncoderWork>& works) const {
    std::vector<double> busy(shape.moments.size(), 0);
    for (size_t stage = 0; stage < found.stages.size(); ++stage) {
      const StageOption& option = found.stages[stage];
      busy[static_cast<size_t>(shape.schedule.rank_of_stage[stage])] +=
          static_cast<double>(plan_.schedule.microbatches) * option.total_ms() + option.figures[kUpdateWork];
    }
    size_t next = 0;
    for (const ModulePlan& module : plan_.modules) {
      if (module.is_in_pipeline()) continue;
      const EncoderWork& work = works[next++];
      if (module.placement == ModulePlacement::kDisjoint) continue;
      const size_t on = busy.size() * module.ranks.size() / plan_.llm().ranks.size();
      for (size_t rank = busy.size() - on; rank < busy.size(); ++rank)
        busy[rank] += work.forwards_ms() + work.backwards_ms();
    }
    return *std::max_element(busy.begin(), busy.end());
  }

  /// What encoders that run beside the pipeline add at its ends whatever the order: the first macro batch comes before
  /// everything, and the last one's backward after it where it lies on all ranks.
  struct Woven {
    double start_ms = 0;
    double end_ms = 0;
  };
  Woven woven_ends(const std::vector<EncoderWork>& works) const {
    Woven ends;
    size_t next = 0;
    for (const ModulePlan& module : plan_.modules) {
      if (module.is_in_pipeline()) continue;
      const EncoderWork& work = works[next++];
      if (module.form == EncoderForm::kBefore) continue;
      ends.start_ms = std::max(ends.start_ms, work.first_forward_ms() + work.bridge_ms);
      if (module.form == EncoderForm::kFill && work.backward_ms > 0)
        ends.end_ms = std::max(ends.end_ms, work.last_backward_ms() + work.bridge_ms);
    }
    return ends;
  }

  void note_open(double bound_ms) { open_bound_ms_ = std::min(open_bound_ms_, bound_ms); }

  /// Simulates the placement; where it does not fit after all, others are tried with less memory.
  void play_separable(const Candidate& c, const BesidePipeline& beside, double bound_ms, double below_ms) {
    if (play(c, bound_ms)) return;
    note_open(bound_ms);
    BesidePipeline tighter = beside;
    for (int attempt = 0; attempt < kMostAttempts; ++attempt) {
      for (BesideMemory& memory : tighter.ranks.memory) memory.static_gib += last_excess_gib_ * (1 + 1e-6);
      fill_plan(c, plan_);
      SolverShape& shape = shape_of(c).solver;
      PlanStages again(plan_, pipeline_modules(), shape, tighter.ranks, space_.recompute, true);
      Solved found = solve(c, shape, again, below_ms);
      if (found.stages.empty()) return;
      again.apply(found.stages, plan_);
      if (play(c, bound_ms)) return;
    }
  }

  /// Simulates plan_ as it is filled; false when it does not fit.
  bool play(const Candidate& c, double bound_ms) {
    const bool is_alone = mask_of(c) + 1 == 1u << num_encoders_;
    if (is_alone) return keep_if_it_fits(c, shape_of(c).lowered, bound_ms);
    const Result<Schedule> schedule = playable_schedule(plan_);
    return !schedule || keep_if_it_fits(c, *schedule, bound_ms);
  }

  bool keep_if_it_fits(const Candidate& c, const Schedule& schedule, double bound_ms) {
    const MeanStep step = simulator_.run_mean(plan_, schedule);
    double most = 0;
    for (const MemorySplit& row : step.memory) most = std::max(most, row.total());
    last_excess_gib_ = most / kGiB - plan_.cluster.device.memory_gib;
    if (last_excess_gib_ > 0) return false;
    keep(c, step, bound_ms);
    return true;
  }

  // ---- Encoders that run while the pipeline does ----

  int64_t least_live(const Candidate& c) {
    const Result<std::vector<EncoderPlacement>> placements = encoder_placements(plan_);
    if (!placements) return 1;
    int32_t least = 1;
    for (const EncoderPlacement& placement : *placements) {
      if (placement.form == EncoderForm::kBefore) continue;
      least = std::max(least, least_live_macro_batches(shape_of(c).solver.schedule, placement.rows));
    }
    return least;
  }

  /// The placement is the pipeline's own best; encoders are woven in for several numbers of live macro batches. What
  /// comes out is the candidate's time, as the space is defined.
  void play_woven(const Candidate& c, int64_t least) {
    for (const int64_t live : {least, 2 * least}) {
      bool fills = false;
      for (ModulePlan& module : plan_.modules) {
        if (module.is_in_pipeline()) continue;
        module.actions.clear();
        if (module.form != EncoderForm::kBefore) module.live_macro_batches = live;
        fills |= module.form == EncoderForm::kFill;
      }
      // More alive at once need more memory still.
      if (!(fills ? play_filled(c) : play(c, 0))) return;
    }
  }

  /// Gives encoders an order in which they fill bubbles, from compute times alone.
  bool play_filled(const Candidate& c) {
    const PlanCosts& costs = simulator_.price(plan_);
    StageDurations durations;
    for (const StageCost& stage : costs.stages) {
      durations.forward_ms.push_back(stage.forward.compute_ms);
      durations.backward_input_ms.push_back(stage.recompute.compute_ms + stage.backward_input.compute_ms);
      durations.backward_weight_ms.push_back(stage.backward_weight.compute_ms);
    }
    Result<std::vector<EncoderPlacement>> encoders = encoder_placements(plan_);
    if (!encoders) return false;
    for (size_t e = 0; e < encoders->size(); ++e) {
      const StageCost& stage = costs.encoders[e].stages.front();
      EncoderPlacement& encoder = (*encoders)[e];
      encoder.forward_ms.assign(encoder.rows.groups.size(), stage.forward.compute_ms);
      encoder.backward_ms.assign(encoder.rows.groups.size(),
                                 stage.backward_input.compute_ms + stage.backward_weight.compute_ms);
    }
    const Schedule* woven = woven_schedule(c, *encoders, durations);
    if (woven == nullptr) return false;
    const size_t num_kept = num_kept_;
    const Result<Schedule> lowered = lower_schedule(with_step_end(*woven));
    if (!lowered || !keep_if_it_fits(c, *lowered, 0)) return false;
    if (num_kept_ == num_kept) return true;
    // The plan that was kept stores the order.
    for (FoundPlan& found : result_.best) {
      if (!(found.candidate == c)) continue;
      for (ModulePlan& module : found.plan.modules) {
        if (module.is_in_pipeline() || module.form != EncoderForm::kFill) continue;
        module.actions = stored_rows(*woven);
        break;
      }
    }
    return true;
  }

  /// Candidates that differ only in what does not compute share their order.
  const Schedule* woven_schedule(const Candidate& c, const std::vector<EncoderPlacement>& encoders,
                                 const StageDurations& durations) {
    std::vector<double> key = {static_cast<double>(c.schedule), static_cast<double>(c.pp), static_cast<double>(c.vpp),
                               static_cast<double>(plan_.schedule.microbatches)};
    for (const auto* column : {&durations.forward_ms, &durations.backward_input_ms, &durations.backward_weight_ms})
      key.insert(key.end(), column->begin(), column->end());
    for (const EncoderPlacement& encoder : encoders) {
      const EncoderRows& rows = encoder.rows;
      key.insert(key.end(), {static_cast<double>(encoder.form), static_cast<double>(rows.num_macro_batches),
                             static_cast<double>(rows.live_macro_batches), static_cast<double>(rows.num_groups()),
                             rows.recompute_from_inputs ? 1.0 : 0.0});
      key.insert(key.end(), encoder.forward_ms.begin(), encoder.forward_ms.end());
      key.insert(key.end(), encoder.backward_ms.begin(), encoder.backward_ms.end());
      key.insert(key.end(), rows.first_macro.begin(), rows.first_macro.end());
    }
    const auto [place, is_new] = woven_.try_emplace(std::move(key));
    if (is_new) {
      const Result<Schedule> pipeline =
          generate_schedule(c.schedule, {.pp = c.pp, .vpp = c.vpp, .microbatches = plan_.schedule.microbatches});
      if (pipeline) {
        Result<Schedule> placed = place_encoders(*pipeline, encoders, durations);
        if (placed) place->second = *std::move(placed);
      }
    }
    return place->second.rows.empty() ? nullptr : &place->second;
  }

  // ---- Results ----

  void keep(const Candidate& c, const MeanStep& step, double bound_ms) {
    if (bound_ms > 0 && bound_ms < step.step_time_ms * (1 - kPrecision)) note_open(bound_ms);
    if (step.step_time_ms >= limit_ms()) return;
    FoundPlan found{.candidate = c,
                    .plan = plan_,
                    .step_time_ms = step.step_time_ms,
                    .bound_ms = bound_ms > 0 ? std::min(bound_ms, step.step_time_ms) : step.step_time_ms};
    insert(std::move(found));
  }

  void insert(FoundPlan found) {
    // Of one candidate only the best is of interest.
    const auto same = std::find_if(result_.best.begin(), result_.best.end(),
                                   [&](const FoundPlan& other) { return other.candidate == found.candidate; });
    if (same != result_.best.end()) {
      if (same->step_time_ms <= found.step_time_ms) return;
      result_.best.erase(same);
    }
    ++num_kept_;
    const auto place = std::upper_bound(result_.best.begin(), result_.best.end(), found.step_time_ms,
                                        [](double ms, const FoundPlan& other) { return ms < other.step_time_ms; });
    result_.best.insert(place, std::move(found));
    if (result_.best.size() > std::max<size_t>(1, options_.top)) result_.best.pop_back();
  }

  void report_progress(size_t done, size_t all) {
    const FoundPlan* best = !result_.best.empty() ? &result_.best.front()
                            : !probed_.empty()    ? &probed_.front()
                                                  : nullptr;
    const double left_s = std::max(0.0, std::chrono::duration<double>(end_ - Clock::now()).count());
    options_.progress(fmt::format(
        "{} of {} groups of candidates, at most {:.0f} s left, best so far {}", done, all, left_s,
        best == nullptr ? "none" : fmt::format("{:.1f} ms: {}", best->step_time_ms, best->candidate.text(best->plan))));
  }

  /// The least that anything which could still win might take.
  void finish() {
    // What the probes found is found again, unless the time was too short.
    bool is_sound = true;
    for (FoundPlan& found : probed_) {
      const bool is_there = std::any_of(result_.best.begin(), result_.best.end(), [&](const FoundPlan& other) {
        return other.candidate == found.candidate && other.step_time_ms <= found.step_time_ms * (1 + kPrecision);
      });
      const bool is_wanted = result_.best.size() < std::max<size_t>(1, options_.top) ||
                             found.step_time_ms < result_.best.back().step_time_ms * (1 - kPrecision);
      const bool is_missing = is_wanted && !is_there;
      if (!is_missing) continue;
      // Otherwise a bound dropped what it should not have.
      is_sound = is_sound && result_.counts.left > 0;
      insert(std::move(found));
    }
    result_.bound_ms = open_bound_ms_;
    if (result_.best.empty()) return;
    const double best_ms = result_.best.front().step_time_ms;
    result_.bound_ms = std::min(best_ms, open_bound_ms_);
    result_.is_optimal = is_sound && result_.counts.left == 0 && result_.bound_ms >= best_ms * (1 - kPrecision);
    if (result_.is_optimal) result_.bound_ms = best_ms;
  }

  const PlanSpace& space_;
  const PlanSearchOptions& options_;
  PlanSimulator simulator_;
  Plan plan_;  // filled anew for every candidate
  size_t num_encoders_;
  Clock::time_point end_;
  bool is_probing_ = false;  // candidates are met again later, with more care
  PlanSearchResult result_;
  double open_bound_ms_ = kInfinity;  // of what was neither placed for certain nor excluded
  double last_excess_gib_ = 0;
  size_t num_kept_ = 0;
  double probed_ms_ = kInfinity;
  std::vector<FoundPlan> probed_;
  ModuleCostsOf modules_;
  std::vector<double> ones_;
  std::map<std::tuple<size_t, int64_t, int64_t, bool>, double> least_;
  std::map<std::tuple<ScheduleName, int64_t, int64_t, int64_t>, std::unique_ptr<PlanShape>> shapes_;
  int64_t size_of_shapes_ = 0;  // their pairs of stage and microbatch
  // Of the frame that is open.
  std::optional<Candidate> opened_;
  FrameChoices choices_;
  std::vector<Combination> combinations_;
  std::map<std::tuple<unsigned, ScheduleName, int64_t, int64_t, bool, bool>, double> free_;
  std::map<std::tuple<unsigned, ScheduleName, int64_t, int64_t, bool>, double> mixed_;
  std::map<std::vector<double>, Schedule> woven_;
  std::array<std::vector<FluidChain>, 1 << kMostEncoders> fluids_;  // by which are inline, and ZeRO stage
};

}  // namespace

namespace {

/// How many of the plans that are fastest for the mean batch are priced on drawn batches.
constexpr size_t kPricedOnBatches = 32;

/// Orders the best by their mean step over drawn batches, the same for all.
Result<PlanSearchResult> price_on_batches(PlanSearchResult result, const PlanSearchOptions& options) {
  result.batches = options.batches;
  result.is_optimal = false;
  const auto end =
      Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(options.time_limit_s));
  for (FoundPlan& found : result.best) {
    const bool is_over = Clock::now() > end || (options.stop != nullptr && options.stop->load());
    if (is_over && result.priced_on_batches > 0) break;
    ++result.priced_on_batches;
    found.plan.batches = options.batches;
    WEFT_TRY(const PlanReport report, simulate_plan(found.plan, {.profile = options.profile}));
    found.step_time_ms = report.step_time_ms;
  }
  result.best.resize(static_cast<size_t>(result.priced_on_batches));
  std::stable_sort(result.best.begin(), result.best.end(),
                   [](const FoundPlan& a, const FoundPlan& b) { return a.step_time_ms < b.step_time_ms; });
  if (result.best.size() > options.top) result.best.resize(options.top);
  return result;
}

}  // namespace

Result<PlanSearchResult> search_plans(const Model& model, const Cluster& cluster, const Workload& workload,
                                      const PlanSpace& space, const PlanSearchOptions& options) {
  Workload load = workload;
  if (space.frozen) load.frozen = *space.frozen;
  const bool draws = options.batches > 0 && has_distributions(load);
  PlanSearchOptions how = options;
  if (draws) how.top = std::max(how.top, kPricedOnBatches);
  Plan plan = plan_without_settings(model, cluster, std::move(load));
  if (how.profile != nullptr) apply_links(*how.profile, plan.cluster);
  WEFT_TRY(PlanSimulator simulator, PlanSimulator::create(plan, how.profile));
  PlanSearchResult result = Searcher(space, how, std::move(simulator), std::move(plan)).run();
  if (!draws) return result;
  return price_on_batches(std::move(result), options);
}

}  // namespace weft
