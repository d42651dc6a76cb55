#include "weft/search/explain_plan.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include <fmt/format.h>

#include "weft/base/text.h"
#include "weft/base/units.h"
#include "weft/plan/plan_json.h"
#include "weft/search/best_plans.h"
#include "weft/search/choose_plan.h"
#include "weft/search/neighbours.h"
#include "weft/search/strategy_search.h"
#include "weft/simulate/plan_simulator.h"

namespace weft {
namespace {

/// Of the time limit, what one search takes at most, and what it may take in any case: with less it finds so little
/// that alternatives look worse than they are.
constexpr double kShareOfSearch = 1.0 / 8, kEnough_s = 5;

/// A space in which one setting differs from the chosen plan's.
struct Pin {
  std::string name;
  PlanSpace space;
};

class PinLister {
 public:
  PinLister(const PlanProblem& problem, const FoundPlan& chosen)
      : problem_(problem), c_(chosen.candidate), is_drawn_(chosen.plan.batches.value_or(0) > 0) {}

  std::vector<Pin> list() {
    pin_number("tp", &PlanSpace::tp, c_.tp, {1, c_.tp / 2, 2 * c_.tp});
    pin_number("pp", &PlanSpace::pp, c_.pp, {1, c_.pp / 2, 2 * c_.pp});
    pin_number("cp", &PlanSpace::cp, c_.cp, {1, 2});
    pin_number("mbs", &PlanSpace::mbs, c_.mbs, {1, c_.mbs / 2, 2 * c_.mbs});
    pin_number("zero", &PlanSpace::zero, c_.zero, {0, 1, 2, 3});
    pin_schedules();
    pin_recomputation();
    pin_encoders();
    if (is_drawn_) pin_balance();
    return std::move(pins_);
  }

 private:
  void add(std::string name, PlanSpace space) {
    const bool is_there = std::any_of(pins_.begin(), pins_.end(), [&](const Pin& pin) { return pin.name == name; });
    if (!is_there) pins_.push_back({std::move(name), std::move(space)});
  }

  void pin_number(const char* name, Allowed PlanSpace::*field, int64_t now, std::initializer_list<int64_t> values) {
    for (const int64_t value : values) {
      const bool is_zero = field == &PlanSpace::zero;
      if (value == now || (value < 1 && !is_zero) || !(problem_.space.*field).contains(value)) continue;
      PlanSpace space = problem_.space;
      space.*field = {.values = {value}, .at_least = 0};
      add(fmt::format("{} {}", name, value), std::move(space));
    }
  }

  void pin_schedules() {
    for (const ScheduleName schedule : problem_.space.schedules) {
      if (schedule == c_.schedule && c_.pp > 1) continue;
      PlanSpace space = problem_.space;
      space.schedules = {schedule};
      // One stage has nothing to schedule.
      space.pp.at_least = std::max<int64_t>(2, space.pp.at_least);
      add(fmt::format("{} {}", c_.pp > 1 ? "schedule" : "a pipeline with", name_of(schedule)), std::move(space));
    }
  }

  void pin_recomputation() {
    PlanSpace space = problem_.space;
    if (!space.recompute.allows_full && !space.recompute.allows_selective) return;
    space.recompute = {.allows_full = false, .allows_selective = false};
    add("no recomputation", std::move(space));
  }

  /// The mean batch has nothing to reassign.
  void pin_balance() {
    const bool reassigns = c_.balance != Balance::kNone;
    PlanSpace space = problem_.space;
    std::erase_if(space.balances, [&](Balance balance) { return (balance != Balance::kNone) == reassigns; });
    if (space.balances.empty()) return;
    add(reassigns ? "balance none" : "a balance other than none", std::move(space));
  }

  void pin_encoders() {
    size_t index = 0;
    for (const Module& module : problem_.model.modules) {
      if (module.kind == ModuleKind::kLlm) continue;
      const EncoderChoice& now = c_.encoders[index++];
      const EncoderSpace& allowed = problem_.space.encoders.at(module.kind);
      const auto pin = [&](const char* name, bool is_allowed, bool is_now, auto change) {
        if (!is_allowed || is_now) return;
        PlanSpace space = problem_.space;
        EncoderSpace& encoder = space.encoders.at(module.kind);
        encoder.allows_inline = encoder.allows_colocated = encoder.allows_disjoint = encoder.allows_partial = false;
        change(encoder);
        add(fmt::format("{} {}", name_of(module.kind), name), std::move(space));
      };
      const bool is_colocated = now.placement == ModulePlacement::kColocated;
      pin("inline", allowed.allows_inline, now.is_inline(), [](EncoderSpace& e) { e.allows_inline = true; });
      pin("colocated, before the pipeline", allowed.allows_colocated && allowed.allows_before,
          is_colocated && !now.fills(), [](EncoderSpace& e) {
            e.allows_colocated = true;
            e.allows_fill = false;
          });
      pin("colocated, in the bubbles", allowed.allows_colocated && allowed.allows_fill, now.fills(),
          [](EncoderSpace& e) {
            e.allows_colocated = true;
            e.allows_before = false;
          });
      pin("on ranks of its own", allowed.allows_disjoint, now.placement == ModulePlacement::kDisjoint,
          [](EncoderSpace& e) { e.allows_disjoint = true; });
      pin("on some pipeline ranks", allowed.allows_partial, now.placement == ModulePlacement::kPartial,
          [](EncoderSpace& e) { e.allows_partial = true; });
    }
  }

  const PlanProblem& problem_;
  const Candidate& c_;
  bool is_drawn_;
  std::vector<Pin> pins_;
};

/// Where a step's time goes, averaged over its rows, in the order of kTimeParts.
std::array<double, kTimeParts.size()> parts_of(const PlanReport& report) {
  std::array<double, kTimeParts.size()> parts{};
  for (const ScheduleRowReport& row : report.rows) {
    for (size_t i = 0; i < parts.size(); ++i)
      parts[i] += row.time.*kTimeParts[i].value / static_cast<double>(report.rows.size());
  }
  return parts;
}

/// Whether two plans say the same but for how it was found.
bool is_same_plan(const Plan& a, const Plan& b) {
  const Json json_a = plan_to_json(a), json_b = plan_to_json(b);
  return json_a.at("modules") == json_b.at("modules") && json_a.at("schedule") == json_b.at("schedule") &&
         a.balance == b.balance;
}

std::string why_it_does_not_fit(const PlanProblem& problem, const PlanSearchOptions& options) {
  const auto least = least_memory(problem, options);
  if (!least) return "does not fit";
  const Result<PlanReport> report = simulate_plan(least->plan.plan, {.profile = options.profile});
  const double missing = least->gib - problem.cluster.device.memory_gib;
  if (!report) return fmt::format("does not fit: about {:.1f} GiB too much", missing);
  const ScheduleRowReport& fullest = report->fullest();
  const MemoryPart& largest = largest_part(fullest.memory);
  return fmt::format("does not fit: about {:.1f} GiB too much at the least, on {}, mostly {} ({:.1f} GiB)", missing,
                     fullest.name, largest.heading, fullest.memory.*largest.value / kGiB);
}

/// What a search with a pin found.
struct PinnedSearch {
  std::string name;
  PlanSpace space;
  std::optional<FoundPlan> best;
  bool is_proven = false;  ///< the best is of the space, and nothing there is faster
  std::string reason;      ///< where nothing fits
};

/// Nothing where the space has no such plan.
std::optional<PinnedSearch> search_pinned(const PlanProblem& problem, const Pin& pin, const PlanSearchOptions& how) {
  Result<PlanSearchResult> found = search_plans(problem.model, problem.cluster, problem.workload, pin.space, how);
  if (!found || found->counts.considered == 0) return std::nullopt;
  PinnedSearch result{.name = pin.name, .space = pin.space, .best = {}, .is_proven = false};
  // What improving finds beyond the space is no more than found.
  result.is_proven = found->is_optimal && found->improved_by == 0 && !found->is_beyond_space;
  if (!found->best.empty()) {
    result.best = std::move(found->best.front());
    return result;
  }
  PlanProblem pinned = problem;
  pinned.space = pin.space;
  result.reason = found->counts.left > 0 ? "not found in the time given" : why_it_does_not_fit(pinned, how);
  return result;
}

/// Improving goes beyond a space from that space's best plan alone: what one search found may have another's setting,
/// and be faster than what that one found.
void share_plans(const PlanProblem& problem, std::vector<PinnedSearch>& searches) {
  const Plan empty = plan_without_settings(problem.model, problem.cluster, problem.workload);
  std::vector<FoundPlan> all;
  for (const PinnedSearch& search : searches) {
    if (search.best) all.push_back(*search.best);
  }
  for (PinnedSearch& search : searches) {
    // Candidates do not say which layers are recomputed.
    if (!search.best || (!search.space.recompute.allows_full && !search.space.recompute.allows_selective)) continue;
    const PlanSpace wide = widened(search.space);
    for (const FoundPlan& other : all) {
      const bool has_balance =
          std::find(wide.balances.begin(), wide.balances.end(), other.plan.balance) != wide.balances.end();
      if (other.step_time_ms < search.best->step_time_ms * (1 - kTie) && has_balance &&
          is_allowed(other.candidate, empty, wide)) {
        search.best = other;
        search.is_proven = false;
      }
    }
  }
}

/// Takes over a plan that is faster than the fastest, and chooses again.
void take_over(const FoundPlan& faster, const PlanSearchOptions& options, PlanSearchResult& result) {
  std::vector<FoundPlan> plans = {faster};
  plans.insert(plans.end(), result.best.begin(), result.best.end());
  result.best = plans;
  if (result.best.size() > std::max<size_t>(1, options.top)) result.best.pop_back();
  plans.push_back(*std::exchange(result.chosen, std::nullopt));
  std::stable_sort(plans.begin(), plans.end(),
                   [](const FoundPlan& a, const FoundPlan& b) { return a.step_time_ms < b.step_time_ms; });
  result.chosen = plans[choose_plan(plans, options.within)];
}

/// Alternatives to the chosen plan, those that lead to the same plan once.
Result<std::vector<Alternative>> compared(std::vector<PinnedSearch> searches, const FoundPlan& chosen,
                                          const Profile* profile) {
  WEFT_TRY(const PlanReport report, simulate_plan(chosen.plan, {.profile = profile}));
  std::vector<Alternative> alternatives;
  for (PinnedSearch& search : searches) {
    Alternative alternative{.names = {std::move(search.name)}, .best = {}, .parts = {}, .reason = search.reason};
    alternative.is_proven = search.is_proven;
    if (search.best) {
      FoundPlan& best = *search.best;
      // The chosen plan has this setting already.
      if (best.candidate == chosen.candidate || is_same_plan(best.plan, chosen.plan)) continue;
      const auto same = std::find_if(alternatives.begin(), alternatives.end(), [&](const Alternative& other) {
        return other.best && is_same_plan(other.best->plan, best.plan);
      });
      if (same != alternatives.end()) {
        same->names.push_back(alternative.names.front());
        same->is_proven &= alternative.is_proven;
        continue;
      }
      WEFT_TRY(const PlanReport other, simulate_plan(best.plan, {.profile = profile}));
      alternative.slower_by = other.step_time_ms / report.step_time_ms - 1;
      alternative.parts = explain_difference(report, other);
      alternative.best = std::move(best);
    }
    alternatives.push_back(std::move(alternative));
  }
  std::stable_sort(alternatives.begin(), alternatives.end(), [](const Alternative& a, const Alternative& b) {
    return a.best.has_value() != b.best.has_value() ? a.best.has_value() : a.slower_by < b.slower_by;
  });
  return alternatives;
}

/// Something that could be otherwise.
struct Change {
  std::string name;
  PlanProblem problem;
  double samples_ratio = 1;
  std::optional<Profile> profile = std::nullopt;  ///< where it is another one
};

/// The same where links have twice the bandwidth, measured ones too.
Change faster_links(const PlanProblem& problem, bool are_between_nodes, const Profile* profile) {
  Change change{.name = fmt::format("links {} twice as fast", are_between_nodes ? "between nodes" : "within a node"),
                .problem = problem};
  Cluster& cluster = change.problem.cluster;
  (are_between_nodes ? cluster.between_nodes : cluster.within_node).bandwidth_gb_per_s *= 2;
  if (profile == nullptr) return change;
  change.profile = *profile;
  for (LinkMeasurement& m : change.profile->links) {
    if (m.is_between_nodes == are_between_nodes) m.bytes *= 2;
  }
  return change;
}

std::vector<Change> list_changes(const PlanProblem& problem, const Profile* profile) {
  std::vector<Change> changes;
  changes.push_back({.name = "25 % more memory", .problem = problem});
  changes.back().problem.cluster.device.memory_gib *= 1.25;
  changes.push_back(faster_links(problem, /*are_between_nodes=*/false, profile));
  if (problem.cluster.nodes > 1) changes.push_back(faster_links(problem, /*are_between_nodes=*/true, profile));
  changes.push_back({.name = "twice the global batch", .problem = problem, .samples_ratio = 2});
  changes.back().problem.workload.global_batch_samples *= 2;
  return changes;
}

WhatIf what_if(const Change& change, const PlanSearchResult& now, PlanSearchOptions how) {
  WhatIf result{.change = change.name};
  if (change.profile) how.profile = &*change.profile;
  const PlanProblem& changed = change.problem;
  Result<PlanSearchResult> found = search_plans(changed.model, changed.cluster, changed.workload, changed.space, how);
  const FoundPlan& fastest = now.best.front();
  double least_ms = found && !found->best.empty() ? found->best.front().step_time_ms : 0;
  if (least_ms > 0) result.best = std::move(found->chosen);
  // With the same batch the plans of today are still there, though a search without a proof may miss them.
  if (change.samples_ratio == 1) {
    Plan same = fastest.plan;
    same.cluster = changed.cluster;
    const Result<PlanReport> priced = simulate_plan(same, {.profile = how.profile});
    if (priced && (least_ms == 0 || priced->step_time_ms < least_ms)) {
      least_ms = priced->step_time_ms;
      result.best = now.chosen;
      result.best->plan.cluster = changed.cluster;
      if (const Result<PlanReport> report = simulate_plan(result.best->plan, {.profile = how.profile}))
        result.best->step_time_ms = report->step_time_ms;
    }
  }
  if (!result.best) return result;
  result.throughput_gain = change.samples_ratio * fastest.step_time_ms / least_ms - 1;
  result.keeps_settings = result.best->candidate == now.chosen->candidate;
  return result;
}

}  // namespace

std::vector<PartDifference> explain_difference(const PlanReport& from, const PlanReport& to) {
  const auto before = parts_of(from), after = parts_of(to);
  std::vector<PartDifference> parts;
  for (size_t i = 0; i < after.size(); ++i) parts.push_back({kTimeParts[i].words, after[i] - before[i]});
  const auto uneven_ms = [](const PlanReport& report) { return report.step_time_ms - report.mean_batch_step_time_ms; };
  parts.push_back({"uneven batches", uneven_ms(to) - uneven_ms(from)});
  std::erase_if(parts, [](const PartDifference& part) { return part.more_ms == 0; });
  std::stable_sort(parts.begin(), parts.end(), [](const PartDifference& a, const PartDifference& b) {
    return std::abs(a.more_ms) > std::abs(b.more_ms);
  });
  return parts;
}

Result<Explanation> explain_plan(const PlanProblem& problem, PlanSearchResult& result,
                                 const PlanSearchOptions& options) {
  PlanSearchOptions how = options;
  how.batches = result.chosen->plan.batches.value_or(0);  // the same for all
  how.top = 1;
  how.within = 0;
  how.progress = {};
  how.time_limit_s = std::min(options.time_limit_s, std::max(kEnough_s, kShareOfSearch * options.time_limit_s));
  const auto is_over = [&] { return options.stop != nullptr && options.stop->load(); };
  std::vector<PinnedSearch> searches;
  for (const Pin& pin : PinLister(problem, *result.chosen).list()) {
    if (is_over()) break;
    if (options.progress) options.progress(fmt::format("explaining: {}", pin.name));
    if (auto search = search_pinned(problem, pin, how)) searches.push_back(*std::move(search));
  }
  if (options.improves) share_plans(problem, searches);
  Explanation explanation;
  // Plans of a problem with a strategy lack the strategy's words.
  if (strategy_of(result.chosen->plan).empty()) {
    const double before_ms = result.best.front().step_time_ms;
    for (const PinnedSearch& search : searches) {
      if (search.best && search.best->step_time_ms < result.best.front().step_time_ms * (1 - kTie))
        take_over(*search.best, options, result);
    }
    explanation.faster_by = 1 - result.best.front().step_time_ms / before_ms;
  }
  WEFT_TRY(explanation.alternatives, compared(std::move(searches), *result.chosen, options.profile));

  // The answer is the choice, not the fastest.
  how.within = options.within;
  for (const Change& change : list_changes(problem, options.profile)) {
    if (is_over()) break;
    if (options.progress) options.progress(fmt::format("explaining: {}", change.name));
    explanation.what_ifs.push_back(what_if(change, result, how));
  }
  return explanation;
}

}  // namespace weft
