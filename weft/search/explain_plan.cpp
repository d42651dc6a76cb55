#include "weft/search/explain_plan.h"

#include <algorithm>
#include <array>
#include <cmath>

#include <fmt/format.h>

#include "weft/base/text.h"
#include "weft/base/units.h"
#include "weft/plan/plan_json.h"
#include "weft/simulate/plan_simulator.h"

namespace weft {
namespace {

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
      add(fmt::format("schedule {}", name_of(schedule)), std::move(space));
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

WhatIf what_if(const PlanProblem& changed, std::string change, const PlanSearchResult& now, double samples_ratio,
               const PlanSearchOptions& options) {
  WhatIf result{.change = std::move(change)};
  Result<PlanSearchResult> found =
      search_plans(changed.model, changed.cluster, changed.workload, changed.space, options);
  if (!found || found->best.empty()) return result;
  result.best = std::move(found->chosen);
  result.throughput_gain = samples_ratio * now.best.front().step_time_ms / found->best.front().step_time_ms - 1;
  result.keeps_settings = result.best->candidate == now.chosen->candidate;
  return result;
}

/// The same where links have twice the bandwidth, measured ones too.
WhatIf what_if_links_were_faster(PlanProblem problem, bool are_between_nodes, const PlanSearchResult& now,
                                 PlanSearchOptions options) {
  Link& link = are_between_nodes ? problem.cluster.between_nodes : problem.cluster.within_node;
  link.bandwidth_gb_per_s *= 2;
  Profile profile;
  if (options.profile != nullptr) {
    profile = *options.profile;
    for (LinkMeasurement& m : profile.links) {
      if (m.is_between_nodes == are_between_nodes) m.bytes *= 2;
    }
    options.profile = &profile;
  }
  return what_if(problem, fmt::format("links {} twice as fast", are_between_nodes ? "between nodes" : "within a node"),
                 now, 1, options);
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

Result<Explanation> explain_plan(const PlanProblem& problem, const PlanSearchResult& result,
                                 const PlanSearchOptions& options) {
  const FoundPlan& chosen = *result.chosen;
  PlanSearchOptions how = options;
  how.batches = chosen.plan.batches.value_or(0);  // the same for all
  how.top = 1;
  how.within = 0;
  how.progress = {};
  Explanation explanation;
  WEFT_TRY(const PlanReport report, simulate_plan(chosen.plan, {.profile = options.profile}));
  const auto is_over = [&] { return options.stop != nullptr && options.stop->load(); };
  for (const Pin& pin : PinLister(problem, chosen).list()) {
    if (is_over()) break;
    if (options.progress) options.progress(fmt::format("explaining: {}", pin.name));
    Result<PlanSearchResult> found = search_plans(problem.model, problem.cluster, problem.workload, pin.space, how);
    if (!found || found->counts.considered == 0) continue;
    Alternative alternative{.names = {pin.name}};
    if (found->best.empty()) {
      PlanProblem pinned = problem;
      pinned.space = pin.space;
      alternative.reason = found->counts.left > 0 ? "not found in the time given" : why_it_does_not_fit(pinned, how);
    } else {
      FoundPlan& best = found->best.front();
      // The chosen plan has this setting already.
      if (best.candidate == chosen.candidate || is_same_plan(best.plan, chosen.plan)) continue;
      const auto same = std::find_if(
          explanation.alternatives.begin(), explanation.alternatives.end(),
          [&](const Alternative& other) { return other.best && is_same_plan(other.best->plan, best.plan); });
      if (same != explanation.alternatives.end()) {
        same->names.push_back(pin.name);
        continue;
      }
      WEFT_TRY(const PlanReport other, simulate_plan(best.plan, {.profile = options.profile}));
      alternative.slower_by = other.step_time_ms / report.step_time_ms - 1;
      alternative.parts = explain_difference(report, other);
      alternative.best = std::move(best);
    }
    explanation.alternatives.push_back(std::move(alternative));
  }
  std::stable_sort(explanation.alternatives.begin(), explanation.alternatives.end(),
                   [](const Alternative& a, const Alternative& b) {
                     return a.best.has_value() != b.best.has_value() ? a.best.has_value() : a.slower_by < b.slower_by;
                   });
  if (is_over()) return explanation;

  // The answer is the choice, not the fastest.
  how.within = options.within;
  PlanProblem changed = problem;
  changed.cluster.device.memory_gib *= 1.25;
  explanation.what_ifs.push_back(what_if(changed, "25 % more memory", result, 1, how));
  explanation.what_ifs.push_back(what_if_links_were_faster(problem, /*are_between_nodes=*/false, result, how));
  if (problem.cluster.nodes > 1)
    explanation.what_ifs.push_back(what_if_links_were_faster(problem, /*are_between_nodes=*/true, result, how));
  changed = problem;
  changed.workload.global_batch_samples *= 2;
  explanation.what_ifs.push_back(what_if(changed, "twice the global batch", result, 2, how));
  return explanation;
}

}  // namespace weft
