#include "weft/search/plan_search.h"

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "weft/cost/apply_profile.h"
#include "weft/exchange/target_limits.h"
#include "weft/meaning/trainable.h"
#include "weft/schedule/schedule_kind.h"
#include "weft/search/best_plans.h"
#include "weft/search/choose_plan.h"
#include "weft/search/drawn_race.h"
#include "weft/search/evaluate_candidate.h"
#include "weft/search/frame_queue.h"
#include "weft/search/improve_plan.h"
#include "weft/search/least_states.h"
#include "weft/search/neighbours.h"
#include "weft/search/plan_bounds.h"
#include "weft/search/plan_pricer.h"
#include "weft/search/polish_placement.h"
#include "weft/spec/num_experts.h"

namespace weft {
namespace {

/// Candidates that the fastest plan is improved with at most.
constexpr int64_t kMostNeighbours = 2000;

/// So many frames that their bounds take most of a short time.
constexpr size_t kManyFrames = 1 << 14;

/// Placements that take so many times their bound are many, and no good to compare with.
constexpr double kFarFromBound = 2;

/// Goes from frames to combinations of encoders to candidates, dropping what cannot win, and keeps account.
class Searcher {
 public:
  Searcher(const PlanSpace& space, const PlanSearchOptions& options, PlanSimulator simulator, Plan problem)
      : options_(options),
        deadline_(options.time_limit_s, options.stop),
        bench_(space, std::move(problem), std::move(simulator)),
        frame_bounds_(bench_),
        best_(std::max<size_t>(1, options.top), options.within, options.limit_ms) {}

  /// Batches decide that are drawn, and these are their loads.
  void compare_on(DrawnObjective& drawn, std::unique_ptr<DrawnLoads> loads) {
    drawn_ = &drawn;
    bench_.assume(std::move(loads));
  }

  /// Improves the fastest plan beyond the space until `deadline`.
  void improve(const Deadline& deadline, PlanSearchResult& result) {
    if (result.best.empty() || !may_improve()) return;
    FoundPlan& fastest = result.best.front();
    PlanClimb climb(bench_, fastest, drawn_);
    climb.go_on(kMostNeighbours, deadline);
    FoundPlan improved = climb.best();
    if (drawn_ == nullptr && frames_->size() <= kManyFrames)
      climb_from_runners_up(fastest, improved.step_time_ms, deadline);
    // What was left for want of time.
    go_on_with_starts(deadline);
    if (!climbs_.empty() && climbs_.front().best_ms() < improved.step_time_ms) improved = climbs_.front().best();
    if (improved.step_time_ms >= fastest.step_time_ms) return;
    result.improved_by = 1 - improved.step_time_ms / fastest.step_time_ms;
    improved.plan.batches = fastest.plan.batches;
    result.best.insert(result.best.begin(), std::move(improved));
  }

  PlanSearchResult run() {
    frames_ = bounded_frames();
    FrameQueue& frames = *frames_;
    probe(frames);
    for (size_t done = 0; done < frames.size(); ++done) {
      if (is_over()) {
        // Ruled out by what is known of them, or left.
        run_frame(frames[done]);
        continue;
      }
      run_frame(frames.least_from(done, best_.limit_ms({}), frame_bounds_, deadline_));
      if (options_.progress) options_.progress(progress_text(done + 1, frames.size()));
    }
    return result();
  }

 private:
  bool is_over() const { return (options_.first_only && best_.fastest() != nullptr) || deadline_.is_over(); }
  /// Of this search, or of the caller, who wants only faster ones.
  bool has_plan() const { return best_.fastest() != nullptr || options_.limit_ms < kInfinity; }

  FrameQueue bounded_frames() {
    const bool nothing_fits = options_.bounds.work && exceeds_all_devices(bench_.plan());
    // Nobody asks for counts where any plan will do.
    if (nothing_fits && options_.first_only) return FrameQueue({});
    std::vector<Frame> frames = list_frames(bench_.plan(), bench_.space());
    for (Frame& frame : frames) {
      counts_.considered += frame.size;
      // Without time, nothing is known of a frame.
      if (nothing_fits || !is_over()) frame.bound_ms = nothing_fits ? kInfinity : frame_bounds_.work_ms(frame.degrees);
    }
    return FrameQueue(std::move(frames));
  }

  // ---- Bounds ----

  /// What the ranks of a pipeline do at least, whatever the schedule.
  struct PipelineWork {
    double busy_ms = 0;  ///< the busiest rank
    double even_ms = 0;  ///< all ranks on average
  };

  /// `by_placement` are of one ZeRO stage.
  PipelineWork pipeline_work(const std::vector<FluidChain>& by_placement, const Combination& combination) {
    const auto microbatches = static_cast<double>(by_placement.front().microbatches);
    PipelineWork work{.busy_ms = kInfinity, .even_ms = microbatches * by_placement.front().even_ms()};
    for (const FluidChain& fluid : by_placement) {
      const double busy_ms = least_busy_ms(bench_.plan(), fluid, {.beside = combination.beside});
      work.busy_ms = std::min(work.busy_ms, microbatches * busy_ms);
    }
    return work;
  }

  // ---- Probes ----

  /// A good plan early rules out most of the rest: the most promising candidates of each of the best frames.
  void probe(FrameQueue& frames) {
    constexpr size_t kMostProbes = 8;
    constexpr int kMostOfPipeline = 3;
    // Where any plan will do, or where there are so many frames that their bounds take most of a short time, what is
    // likely to fit comes before what is likely to be fast.
    // Where only faster plans than some are wanted, any plan is no help.
    const bool settles = options_.limit_ms == kInfinity;
    const bool settles_first = settles && (options_.first_only || frames.size() > kManyFrames);
    if (settles_first) settle_for_any(frames);
    // Bounds of different pipelines are not equally good: the best frame of each that has a plan.
    for (const int64_t pp : frames.pipelines()) {
      for (int probes = 0; probes < kMostOfPipeline && !is_over(); ++probes) {
        Frame* frame = frames.least_with(pp, best_.limit_ms({}), frame_bounds_, deadline_);
        if (frame == nullptr || probe_frame(*frame)) break;
      }
    }
    frames.sort();
    for (size_t f = 0; f < std::min(kMostProbes, frames.size()); ++f) {
      if (is_over()) break;
      Frame& frame = frames.least_from(f, best_.limit_ms({}), frame_bounds_, deadline_);
      if (frame.bound_ms >= best_.limit_ms({})) break;
      if (!frame.is_probed) probe_frame(frame);
    }
    // Something is better than nothing, however short the time.
    if (best_.fastest() == nullptr && settles && !settles_first) settle_for_any(frames);
    look_beyond();
    best_.end_probing();
  }

  /// Any plan that fits, where the most promising do not or the time is over.
  void settle_for_any(FrameQueue& frames) {
    constexpr size_t kMostFrames = 32, kMostCombinations = 3;
    const ClusterDevice& device = bench_.plan().cluster.device;
    const double room_gib = device.memory_gib - device.reserved_memory_gib;
    for (const Frame* closed : frames.likely_to_fit(kMostFrames, room_gib, frame_bounds_)) {
      OpenFrame frame = open_frame(bench_, closed->degrees);
      std::erase_if(frame.combinations, [](const Combination& c) { return c.least_ms == kInfinity; });
      // Those that are placed at once before others; the fastest, then those that leave the pipeline most.
      const auto is_plain = [&](const Combination& c) { return frame.candidate_of(c).is_separable(); };
      const auto end_of_plain = std::stable_partition(frame.combinations.begin(), frame.combinations.end(), is_plain);
      const auto settle_among = [&](auto begin, auto end) {
        for (auto c = begin; c != end && c != begin + kMostCombinations; ++c) {
          if (settle_for(frame, *c)) return true;
        }
        return false;
      };
      for (const bool is_fastest : {true, false}) {
        if (!is_fastest)
          std::stable_sort(frame.combinations.begin(), end_of_plain, [](const Combination& a, const Combination& b) {
            return a.beside.least() < b.beside.least();
          });
        if (settle_among(frame.combinations.begin(), end_of_plain)) return;
      }
      if (settle_among(end_of_plain, frame.combinations.end())) return;
    }
  }

  /// Whether a candidate of the combination fits, in the plainest schedule: near its bound, or with everything
  /// recomputed.
  bool settle_for(OpenFrame& frame, const Combination& combination) {
    constexpr double kNear = 1.25;
    Candidate c = frame.candidate_of(combination);
    frame.choices.schedules.front().apply(c);
    const FluidPipeline& fluids = frame.fluids[bench_.inline_encoders(c)];
    // Where the space has a rule, placements are its own.
    const bool may_recompute_all = c.vpp == 1 && c.is_separable();
    for (const bool recomputes_all : {false, true}) {
      if (recomputes_all && !may_recompute_all) continue;
      for (size_t i = 0; i < frame.choices.zeros.size(); ++i) {
        // Where everything is recomputed, what divides most comes first.
        const size_t z = recomputes_all ? frame.choices.zeros.size() - 1 - i : i;
        frame.choices.zeros[z].apply(c);
        const PipelineWork work = pipeline_work(fluids.by_zero[z], combination);
        if (work.busy_ms == kInfinity || !is_expressed(c)) continue;
        const double least_ms = combination.bound_ms(0, work.busy_ms, work.even_ms);
        const bool looks_near = may_recompute_all && !recomputes_all;
        evaluate(frame, c, least_ms,
                 {.is_probe = true,
                  .recomputes_all = recomputes_all,
                  .far = looks_near ? kNear : kInfinity,
                  .deadline = deadline_});
        if (best_.fastest() != nullptr) return true;
      }
    }
    return false;
  }

  /// On drawn batches bounds are far below what plans take, and lead to the best only after very many.
  void look_beyond() {
    if (!may_improve() || drawn_ == nullptr || best_.fastest() == nullptr || deadline_.is_over()) return;
    const FoundPlan before = *best_.fastest();
    const std::vector<FoundPlan> starts = PlanClimb(bench_, before, drawn_).look_far(deadline_);
    if (!starts.empty() && starts.front().step_time_ms < before.step_time_ms) best_.offer(starts.front());
    // Plans of other kinds may become faster than the best has. Before the search proper: where long samples are rare
    // its bounds rule out little, and it takes whatever time there is. The rest is for bounds.
    constexpr size_t kMostStarts = 4;
    for (size_t i = 0; i < std::min(kMostStarts, starts.size()); ++i)
      climbs_.emplace_back(bench_, starts[i], drawn_, /*holds_encoders=*/true);
    go_on_with_starts(Deadline(Deadline::Clock::now() + deadline_.left() / 2, options_.stop));
    if (!climbs_.empty() && climbs_.front().best_ms() < best_.fastest()->step_time_ms)
      best_.offer(climbs_.front().best());
  }

  // ---- Runners-up ----

  /// Plans of the space with other numbers of pipeline ranks, or of chunks, that are nearly as fast: improving one
  /// leads to what improving the fastest does not.
  std::vector<FoundPlan> runners_up(const FoundPlan& fastest, const Deadline& deadline) {
    constexpr double kNear = 1.03;
    constexpr size_t kMostPipelines = 4;
    // Frames with encoders have hundreds of combinations.
    const size_t most_frames = bench_.num_encoders() > 0 ? 2 : 8;
    std::map<PipelineKind, FoundPlan> kinds;
    size_t num_pipelines = 0;
    frames_->forget_probes();
    for (const int64_t pp : frames_->pipelines()) {
      size_t num_frames = 0;
      while (num_frames < most_frames && !deadline.is_over()) {
        Frame* frame = frames_->least_with(pp, kNear * fastest.step_time_ms, frame_bounds_, deadline);
        if (frame == nullptr) break;
        frame->is_probed = true;
        ++num_frames;
        OpenFrame open = open_frame(bench_, frame->degrees);
        find_runners_up(open, kNear * fastest.step_time_ms, deadline, kinds);
      }
      if (num_frames > 0 && ++num_pipelines == kMostPipelines) break;
    }
    kinds.erase(kind_of_pipeline(fastest.candidate));
    std::vector<FoundPlan> found;
    for (auto& [kind, plan] : kinds) found.push_back(std::move(plan));
    std::stable_sort(found.begin(), found.end(),
                     [](const FoundPlan& a, const FoundPlan& b) { return a.step_time_ms < b.step_time_ms; });
    return found;
  }

  /// Pipeline ranks, and whether they have several chunks.
  using PipelineKind = std::pair<int64_t, bool>;
  static PipelineKind kind_of_pipeline(const Candidate& c) { return {c.pp, c.vpp > 1}; }

  /// Looks at a few candidates of a frame, with little care.
  void find_runners_up(OpenFrame& frame, double most_ms, const Deadline& deadline,
                       std::map<PipelineKind, FoundPlan>& kinds) {
    constexpr int kMostTried = 32;
    int num_tried = 0;
    for (const Combination& combination : frame.combinations) {
      if (combination.least_ms >= most_ms || num_tried >= kMostTried) return;
      Candidate c = frame.candidate_of(combination);
      // Placing a chain of several modules takes long where little is ruled out, and so does weaving encoders in.
      if (!c.is_separable() || (c.pp > 1 && bench_.inline_encoders(c) != 0)) continue;
      const FluidPipeline& fluids = frame.fluids[bench_.inline_encoders(c)];
      for (size_t z = 0; z < frame.choices.zeros.size(); ++z) {
        frame.choices.zeros[z].apply(c);
        const PipelineWork work = pipeline_work(fluids.by_zero[z], combination);
        for (const ScheduleChoice& schedule : frame.choices.schedules) {
          if (deadline.is_over()) return;
          schedule.apply(c);
          const auto known = kinds.find(kind_of_pipeline(c));
          const double limit_ms = known == kinds.end() ? most_ms : known->second.step_time_ms;
          const double least_ms = bound_ms(frame, combination, c, frame.fluid_of(c, fluids.by_zero[z]), work);
          if (least_ms >= limit_ms) continue;
          ++num_tried;
          Evaluation evaluation = evaluate_candidate(bench_, frame, c,
                                                     {.bound_ms = least_ms,
                                                      .limit_ms = limit_ms,
                                                      .reassigned_limit_ms = limit_ms,
                                                      .deadline = deadline,
                                                      .is_probe = true,
                                                      .has_plan = true});
          for (FoundPlan& found : evaluation.found) {
            const auto kind = kinds.find(kind_of_pipeline(c));
            if (kind == kinds.end() || found.step_time_ms < kind->second.step_time_ms)
              kinds.insert_or_assign(kind_of_pipeline(c), std::move(found));
          }
        }
      }
    }
  }

  /// In rounds; who stays far behind is left.
  void climb_from_runners_up(const FoundPlan& fastest, double improved_ms, const Deadline& deadline) {
    constexpr size_t kMostStarts = 3;
    constexpr int64_t kRounds = 8, kTriesARound = 60;
    constexpr double kFar = 1.02;
    std::vector<FoundPlan> starts = runners_up(fastest, deadline);
    if (starts.size() > kMostStarts) starts.resize(kMostStarts);
    for (const FoundPlan& start : starts) climbs_.emplace_back(bench_, start, drawn_);
    double best_ms = improved_ms;
    for (num_rounds_ = 0; num_rounds_ < kRounds && !climbs_.empty(); ++num_rounds_) {
      for (PlanClimb& climb : climbs_) {
        climb.go_on(kTriesARound, deadline);
        best_ms = std::min(best_ms, climb.best_ms());
      }
      std::erase_if(climbs_, [&](const PlanClimb& climb) {
        return climb.best_ms() > kFar * best_ms || (climb.has_ended() && climb.best_ms() > best_ms);
      });
    }
    num_rounds_ = kRounds;
    std::stable_sort(climbs_.begin(), climbs_.end(),
                     [](const PlanClimb& a, const PlanClimb& b) { return a.best_ms() < b.best_ms(); });
    // The fastest goes on to its end.
    if (!climbs_.empty() && climbs_.front().best_ms() < improved_ms) climbs_.front().go_on(kMostNeighbours, deadline);
  }

  /// In rounds, so that none takes the time of all; the fastest is the first then.
  void go_on_with_starts(const Deadline& deadline) {
    constexpr int64_t kRounds = 8, kTriesARound = 60;
    while (num_rounds_ < kRounds && !deadline.is_over()) {
      for (PlanClimb& climb : climbs_) climb.go_on(kTriesARound, deadline);
      std::stable_sort(climbs_.begin(), climbs_.end(),
                       [](const PlanClimb& a, const PlanClimb& b) { return a.best_ms() < b.best_ms(); });
      // One that the time has ended goes on later.
      if (!deadline.is_over()) ++num_rounds_;
    }
  }

  bool may_improve() const { return options_.improves && !bench_.space().target && !options_.first_only; }

  /// Whether some candidate could be simulated.
  bool probe_frame(Frame& closed) {
    constexpr int kMostTried = 24, kMostFound = 6, kMostWoven = 3;
    closed.is_probed = true;
    // Where one placement takes seconds, others are tried all the same.
    constexpr int kMostShare = 8;
    const Deadline deadline(Deadline::Clock::now() + deadline_.left() / kMostShare, options_.stop);
    OpenFrame frame = open_frame(bench_, closed.degrees);
    int num_tried = 0;
    int num_found = 0;
    int num_woven = 0;
    for (const Combination& combination : frame.combinations) {
      if (combination.least_ms >= best_.limit_ms({}) || num_found == kMostFound || num_tried == kMostTried) break;
      if (is_over() || deadline.is_over()) break;
      // Weaving encoders in takes long.
      if (!frame.candidate_of(combination).is_separable() && ++num_woven > kMostWoven) continue;
      ++num_tried;
      num_found += probe_combination(frame, combination, deadline) ? 1 : 0;
    }
    return num_found > 0;
  }

  /// Whether a candidate could be simulated.
  bool probe_combination(OpenFrame& frame, const Combination& combination, const Deadline& deadline) {
    bool has_found = false;
    Candidate c = frame.candidate_of(combination);
    const FluidPipeline& fluids = frame.fluids[bench_.inline_encoders(c)];
    for (size_t z = 0; z < frame.choices.zeros.size(); ++z) {
      frame.choices.zeros[z].apply(c);
      const PipelineWork work = pipeline_work(fluids.by_zero[z], combination);
      for (const ScheduleChoice& schedule : frame.choices.schedules) {
        if (is_over() || deadline.is_over()) return has_found;
        schedule.apply(c);
        const double least_ms = bound_ms(frame, combination, c, frame.fluid_of(c, fluids.by_zero[z]), work);
        if (least_ms >= limit_ms(c, least_ms) || !is_expressed(c)) continue;
        // What a probe leaves open is met again.
        Evaluation evaluation =
            evaluate(frame, c, least_ms, {.is_probe = true, .far = kFarFromBound, .deadline = deadline});
        has_found |= evaluation.fate == Fate::kSimulated;
      }
    }
    return has_found;
  }

  // ---- The search proper ----

  void run_frame(const Frame& closed) {
    if (options_.bounds.work && closed.bound_ms == kInfinity) {
      counts_.over_memory += closed.size;
      return;
    }
    if (options_.bounds.work && closed.bound_ms >= best_.limit_ms(least_simplicity(closed.degrees, bench_.space()))) {
      counts_.slower_by_work += closed.size;
      return;
    }
    if (is_over()) {
      leave(closed.size, closed.bound_ms);
      return;
    }
    OpenFrame frame = open_frame(bench_, closed.degrees);
    for (const Combination& combination : frame.combinations) {
      const auto limit_ms = [&] {
        return best_.limit_ms(least_simplicity(frame.candidate_of(combination), frame.choices, bench_.num_encoders()));
      };
      if (options_.bounds.work && combination.least_ms == kInfinity) {
        counts_.over_memory += frame.num_per_combination();
      } else if (options_.bounds.work && combination.least_ms >= limit_ms()) {
        counts_.slower_by_work += frame.num_per_combination();
      } else if (is_over()) {
        leave(frame.num_per_combination(), combination.least_ms);
      } else {
        run_combination(frame, combination);
      }
    }
  }

  void run_combination(OpenFrame& frame, const Combination& combination) {
    const auto num_schedules = static_cast<int64_t>(frame.choices.schedules.size());
    Candidate c = frame.candidate_of(combination);
    const FluidPipeline& fluids = frame.fluids[bench_.inline_encoders(c)];
    for (size_t z = 0; z < frame.choices.zeros.size(); ++z) {
      frame.choices.zeros[z].apply(c);
      PipelineWork work = pipeline_work(fluids.by_zero[z], combination);
      if (options_.bounds.work && work.busy_ms == kInfinity) {
        counts_.over_memory += num_schedules;
        continue;
      }
      c.vpp = 1;
      c.schedule = usual_schedule(c.vpp);
      if (options_.bounds.work && combination.bound_ms(0, work.busy_ms, work.even_ms) >=
                                      best_.limit_ms(simplicity_of(c, bench_.num_encoders()))) {
        counts_.slower_by_work += num_schedules;
        continue;
      }
      if (!options_.bounds.work) work = {};
      for (const ScheduleChoice& schedule : frame.choices.schedules) {
        schedule.apply(c);
        run_candidate(frame, c, bound_ms(frame, combination, c, frame.fluid_of(c, fluids.by_zero[z]), work));
      }
    }
  }

  double bound_ms(OpenFrame& frame, const Combination& combination, const Candidate& c, const FluidChain& fluid,
                  const PipelineWork& work) {
    const double mixed_ms = options_.bounds.schedule ? frame.bounds.mixed_ms(bench_, c) : 0;
    double busy_ms = work.busy_ms;
    if (c.vpp > 1 && options_.bounds.work) {
      // Several chunks a rank hold more microbatches than one would.
      const RankLoad load{
          .beside = combination.beside, .chunks = c.vpp, .in_flight = bench_.shape_of(c).solver().held_anyway};
      busy_ms =
          std::max(busy_ms, static_cast<double>(bench_.microbatches(c)) * least_busy_ms(bench_.plan(), fluid, load));
    }
    const double bound_ms = combination.bound_ms(mixed_ms, busy_ms, work.even_ms);
    if (!options_.bounds.schedule || bound_ms >= limit_ms(c, bound_ms)) return bound_ms;
    const double room_ms =
        frame.bounds.room_ms(bench_, c, fluid, combination.beside, /*hides_reductions=*/combination.after_ms > 0);
    return std::max(bound_ms, combination.bound_ms(room_ms, busy_ms, work.even_ms));
  }

  void run_candidate(OpenFrame& frame, const Candidate& c, double bound_ms) {
    if (bound_ms == kInfinity) {
      ++counts_.over_memory;
    } else if (options_.bounds.schedule && bound_ms >= limit_ms(c, bound_ms)) {
      ++counts_.slower_by_schedule;
    } else if (!is_expressed(c)) {
      ++counts_.not_expressed;
    } else if (is_over()) {
      leave(1, bound_ms);
    } else {
      const Evaluation evaluation = evaluate(frame, c, bound_ms, {.deadline = deadline_});
      ++count_of(evaluation.fate);
      open_bound_ms_ = std::min(open_bound_ms_, evaluation.open_bound_ms);
    }
  }

  struct Care {
    bool is_probe = false;
    bool recomputes_all = false;
    double far = kInfinity;  ///< times the bound: slower placements are not looked for
    Deadline deadline = {};
  };
  /// Offers what it finds to the best.
  Evaluation evaluate(OpenFrame& frame, const Candidate& c, double bound_ms, const Care& care) {
    Candidate reassigned = c;
    reassigned.balance = Balance::kBoth;
    const double far_ms = bound_ms > 0 ? care.far * bound_ms : kInfinity;
    const auto limit_of = [&](const Candidate& of) {
      return std::min(far_ms, best_.limit_ms(simplicity_of(of, bench_.num_encoders())));
    };
    Evaluation evaluation = evaluate_candidate(bench_, frame, c,
                                               {.bound_ms = bound_ms,
                                                .limit_ms = limit_of(c),
                                                .reassigned_limit_ms = limit_of(reassigned),
                                                .bounds = options_.bounds,
                                                .deadline = care.deadline,
                                                .is_probe = care.is_probe,
                                                .recomputes_all = care.recomputes_all,
                                                .has_plan = has_plan(),
                                                .drawn = drawn_});
    for (FoundPlan& found : evaluation.found) {
      found.simplicity = simplicity_of(found.candidate, bench_.num_encoders());
      found.simplicity.lacks_export = expressed_by(found.plan).empty();
      best_.offer(std::move(found));
    }
    return evaluation;
  }

  /// Of a candidate that is no faster than a bound. Whether it can be exported is looked at only where that matters.
  double limit_ms(const Candidate& c, double bound_ms) {
    Simplicity simplicity = simplicity_of(c, bench_.num_encoders());
    const double exported_ms = best_.limit_ms(simplicity);
    simplicity.lacks_export = true;
    const double other_ms = best_.limit_ms(simplicity);
    if (bound_ms >= exported_ms || bound_ms < other_ms) return exported_ms;
    bench_.fill(c);
    return expressed_by(bench_.plan()).empty() ? other_ms : exported_ms;
  }

  /// By the space's target, as far as degrees, schedule and placement of modules go.
  bool is_expressed(const Candidate& c) {
    if (!bench_.space().target) return true;
    bench_.fill(c);
    return can_express(bench_.plan(), *bench_.space().target);
  }

  // ---- Accounts ----

  int64_t& count_of(Fate fate) {
    switch (fate) {
      case Fate::kSlowerBySchedule:
        return counts_.slower_by_schedule;
      case Fate::kSlowerByPlacement:
        return counts_.slower_by_placement;
      case Fate::kOverMemory:
        return counts_.over_memory;
      case Fate::kOpen:
      case Fate::kSimulated:
        break;
    }
    return counts_.evaluated;
  }

  void leave(int64_t count, double bound_ms) {
    counts_.left += count;
    open_bound_ms_ = std::min(open_bound_ms_, bound_ms);
  }

  std::string progress_text(size_t done, size_t all) const {
    const FoundPlan* best = best_.fastest();
    const double left_s = std::max(0.0, std::chrono::duration<double>(deadline_.left()).count());
    return fmt::format(
        "{} of {} groups of candidates, at most {:.0f} s left, best so far {}", done, all, left_s,
        best == nullptr ? "none" : fmt::format("{:.1f} ms: {}", best->step_time_ms, best->candidate.text(best->plan)));
  }

  PlanSearchResult result() {
    // What the probes found is found again, unless the time was too short: otherwise a bound dropped what it should not
    // have. On drawn batches a probe's placement may be the faster one.
    const bool is_sound = !best_.restore_missing() || counts_.left > 0 || drawn_ != nullptr;
    PlanSearchResult result{.best = best_.take(), .counts = counts_, .bound_ms = open_bound_ms_};
    if (result.best.empty()) return result;
    const double best_ms = result.best.front().step_time_ms;
    result.bound_ms = std::min(best_ms, open_bound_ms_);
    result.is_optimal = is_sound && counts_.left == 0 && result.bound_ms >= best_ms * (1 - kPrecision);
    if (result.is_optimal) result.bound_ms = best_ms;
    return result;
  }

  const PlanSearchOptions& options_;
  Deadline deadline_;
  Workbench bench_;
  FrameBounds frame_bounds_;
  std::optional<FrameQueue> frames_;
  DrawnObjective* drawn_ = nullptr;
  BestPlans best_;
  std::vector<PlanClimb> climbs_;  // of plans of several kinds
  int64_t num_rounds_ = 0;         // of all climbs together
  SearchCounts counts_;
  double open_bound_ms_ = kInfinity;  // of what was neither placed for certain nor excluded
};

/// Batches that all candidates are compared on: many of few samples, which differ more, or few of many.
int64_t first_batches(int64_t samples) {
  constexpr int64_t kFewest = 4, kSamples = 4096;
  return std::clamp(kSamples / samples, kFewest, kMostRaceBatches);
}

/// What the search proper has of the time, where improving follows.
double search_limit_s(const PlanSearchOptions& options) {
  constexpr double kShare = 0.65;
  return options.time_limit_s * (options.improves ? kShare : 1);
}

/// When improving ends; it leaves some of the time for more batches.
Deadline::Clock::time_point improve_end(const PlanSearchOptions& options) {
  constexpr double kShare = 0.92;
  return Deadline::Clock::now() + std::chrono::duration_cast<Deadline::Clock::duration>(
                                      std::chrono::duration<double>(kShare * options.time_limit_s));
}

/// Places the fastest plan's layers for the batches themselves.
void polish(PlanPricer& pricer, const PlanSpace& space, const Deadline& deadline, PlanSearchResult& result) {
  FoundPlan& fastest = result.best.front();
  FoundPlan polished = polish_placement(pricer, fastest, space.recompute, deadline);
  if (polished.step_time_ms >= fastest.step_time_ms) return;
  result.improved_by = 1 - (1 - result.improved_by) * polished.step_time_ms / fastest.step_time_ms;
  fastest = std::move(polished);
}

/// Searches with drawn batches as the objective, then compares the best on more of them until it is sure.
Result<PlanSearchResult> search_on_drawn(const PlanSpace& space, const PlanSearchOptions& options,
                                         const Plan& problem) {
  const Deadline deadline(options.time_limit_s, options.stop);
  const auto improve_limit = improve_end(options);
  const bool draws_enough = options.batches == kEnoughBatches;
  const int64_t batches = draws_enough ? first_batches(problem.workload.global_batch_samples) : options.batches;
  const bool races = draws_enough && batches < kMostRaceBatches;
  PlanSearchOptions how = options;
  how.time_limit_s = search_limit_s(options);
  if (races) {
    // What more batches may bring to the front, or into the margin.
    how.top = std::max(how.top, kMostRaced);
    if (how.within > 0) how.within += kLittleDifference;
  }
  DrawnSamples samples(problem);
  WEFT_TRY(PlanSimulator simulator, PlanSimulator::create(problem, how.profile));
  WEFT_TRY(PlanSimulator assumed, PlanSimulator::create(problem, how.profile));
  DrawnObjective objective(std::move(simulator), samples, space.balances, batches);
  const bool may_reassign = space.balances != std::vector{Balance::kNone};
  Searcher searcher(space, how, std::move(assumed), problem);
  searcher.compare_on(objective, std::make_unique<DrawnLoads>(problem, samples, batches, may_reassign));
  PlanSearchResult result = searcher.run();
  if (result.best.empty()) return result;
  const double space_ms = result.best.front().step_time_ms;
  if (options.improves) {
    const Deadline improve_deadline(improve_limit, options.stop);
    searcher.improve(improve_deadline, result);
    if (!space.target) {
      WEFT_TRY(PlanSimulator whole, PlanSimulator::create(problem, how.profile));
      PlanPricer pricer(std::move(whole), samples, batches);
      polish(pricer, space, improve_deadline, result);
    }
  }
  const double first_ms = result.best.front().step_time_ms;
  const Candidate first = result.best.front().candidate;
  result.batches = batches;
  if (races) {
    const RaceOptions race_options{
        .keep = std::max<size_t>(1, options.top),
        .within = options.within,
        .deadline = deadline,
        .most_batches = static_cast<int64_t>(kMostDrawnPieces / expected_pieces(problem.model, problem.workload, 1))};
    result.batches = race(objective, race_options, result.best);
  }
  result.num_drawn = objective.num_priced();
  for (FoundPlan& found : result.best) found.plan.batches = result.batches;
  // More batches move the mean, of the bound as of the plan.
  const double best_ms = result.best.front().step_time_ms;
  const bool is_of_space = result.improved_by == 0 || !(result.best.front().candidate == first);
  if (is_of_space) result.improved_by = 0;
  result.bound_ms = result.is_optimal && is_of_space
                        ? best_ms
                        : (result.is_optimal ? space_ms : result.bound_ms) * best_ms / first_ms;
  return result;
}

}  // namespace

Result<PlanSearchResult> search_plans(const Model& model, const Cluster& cluster, const Workload& workload,
                                      const PlanSpace& given, const PlanSearchOptions& options) {
  WEFT_TRY(PlanSpace space, fitted(given, model));
  Workload load = workload;
  if (space.frozen) load.frozen = *space.frozen;
  const int64_t first = options.batches == kEnoughBatches ? first_batches(load.global_batch_samples) : options.batches;
  const bool draws = options.batches != 0 && !options.first_only && has_distributions(load) &&
                     load.global_batch_samples <= kMostDrawnSamples &&
                     expected_pieces(model, load, first) <= kMostDrawnPieces;
  Plan plan = plan_without_settings(model, cluster, std::move(load));
  plan.cluster.device.memory_gib *= 1 - options.memory_margin;
  if (num_experts(*model.find(ModuleKind::kLlm)) > 1 && !Trainable(plan).reaches_experts_alike()) {
    if (!space.ep.contains(1))
      return Error{.field = "llm.ep",
                   .problem =
                       "does not allow 1, but an encoder is trained and some experts lie before all that is "
                       "trained in the llm, so that they cannot be shared out",
                   .advice = "Allow 1, or train the llm from its first layer on."};
    space.ep = {.values = {1}};
  }
  if (options.profile != nullptr) apply_profile(*options.profile, plan);
  PlanSearchResult result;
  if (draws) {
    WEFT_TRY(result, search_on_drawn(space, options, plan));
  } else {
    WEFT_TRY(PlanSimulator simulator, PlanSimulator::create(plan, options.profile));
    const Deadline deadline(improve_end(options), options.stop);
    PlanSearchOptions how = options;
    how.time_limit_s = search_limit_s(options);
    Searcher searcher(space, how, std::move(simulator), std::move(plan));
    result = searcher.run();
    if (options.improves) searcher.improve(deadline, result);
  }
  if (result.best.empty()) return result;
  result.is_beyond_space = !is_in(result.best.front().candidate, result.best.front().plan, space);
  // Margin and profile bind the search; what a plan says of its cluster is what was given.
  for (FoundPlan& found : result.best) found.plan.cluster = cluster;
  result.chosen = result.best[choose_plan(result.best, options.within)];
  const size_t top = std::max<size_t>(1, options.top);
  if (result.best.size() > top) result.best.resize(top);
  return result;
}

}  // namespace weft
