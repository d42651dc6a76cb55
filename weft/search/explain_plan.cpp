#include "weft/search/explain_plan.h"

#include <algorithm>
#include <array>

#include <fmt/format.h>

#include "weft/base/text.h"
#include "weft/base/units.h"
#include "weft/simulate/plan_simulator.h"

namespace weft {
namespace {

/// A space in which one setting differs from the best plan's.
struct Pin {
  std::string name;
  PlanSpace space;
};

class PinLister {
 public:
  PinLister(const PlanProblem& problem, const FoundPlan& best) : problem_(problem), c_(best.candidate) {}

  std::vector<Pin> list() {
    pin_number("tp", &PlanSpace::tp, c_.tp, {1, c_.tp / 2, 2 * c_.tp});
    pin_number("pp", &PlanSpace::pp, c_.pp, {1, c_.pp / 2, 2 * c_.pp});
    pin_number("cp", &PlanSpace::cp, c_.cp, {1, 2});
    pin_number("mbs", &PlanSpace::mbs, c_.mbs, {1, c_.mbs / 2, 2 * c_.mbs});
    pin_number("zero", &PlanSpace::zero, c_.zero, {0, 1, 2, 3});
    pin_schedules();
    pin_recomputation();
    pin_encoders();
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
  std::vector<Pin> pins_;
};

/// Where a step's time goes, averaged over its rows, in the order of kTimeParts.
std::array<double, kTimeParts.size()> parts_of(const PlanReport& report) {
  std::array<double, kTimeParts.size()> parts{};
  for (const RowReport& row : report.rows) {
    for (size_t i = 0; i < parts.size(); ++i)
      parts[i] += row.time.*kTimeParts[i].value / static_cast<double>(report.rows.size());
  }
  return parts;
}

/// The two parts that grew most.
std::string what_grew(const PlanReport& from, const PlanReport& to) {
  const auto before = parts_of(from), after = parts_of(to);
  std::vector<std::pair<double, const char*>> grown;
  for (size_t i = 0; i < after.size(); ++i) {
    if (after[i] > before[i]) grown.emplace_back(after[i] - before[i], kTimeParts[i].words);
  }
  std::stable_sort(grown.begin(), grown.end(), [](const auto& a, const auto& b) { return a.first > b.first; });
  std::vector<std::string> words;
  for (const auto& [more_ms, name] : grown) {
    if (words.size() < 2 && more_ms >= 0.1 * grown.front().first)
      words.push_back(fmt::format("{:.1f} ms more for {}", more_ms, name));
  }
  return words.empty() ? "the same parts" : fmt::format("{}", fmt::join(words, " and "));
}

std::string why_it_does_not_fit(const PlanProblem& problem, const PlanSearchOptions& options) {
  const auto least = least_memory(problem, options);
  if (!least) return "does not fit";
  const Result<PlanReport> report = simulate_plan(least->plan.plan, {.profile = options.profile});
  const double missing = least->gib - problem.cluster.device.memory_gib;
  if (!report) return fmt::format("does not fit: about {:.1f} GiB too much", missing);
  const RowReport& fullest = report->fullest();
  const MemoryPart& largest = largest_part(fullest.memory);
  return fmt::format("does not fit: about {:.1f} GiB too much at the least, on {}, mostly {} ({:.1f} GiB)", missing,
                     fullest.name, largest.heading, fullest.memory.*largest.value / kGiB);
}

WhatIf what_if(const PlanProblem& changed, std::string change, const FoundPlan& best, double samples_ratio,
               const PlanSearchOptions& options) {
  WhatIf result{.change = std::move(change)};
  Result<PlanSearchResult> found =
      search_plans(changed.model, changed.cluster, changed.workload, changed.space, options);
  if (!found || found->best.empty()) return result;
  result.best = std::move(found->best.front());
  result.throughput_gain = samples_ratio * best.step_time_ms / result.best->step_time_ms - 1;
  result.keeps_settings = result.best->candidate == best.candidate;
  return result;
}

}  // namespace

Result<Explanation> explain_plan(const PlanProblem& problem, const FoundPlan& best, const PlanSearchOptions& options) {
  PlanSearchOptions how = options;
  how.batches = best.plan.batches.value_or(0);  // the same for all
  how.top = 1;
  Explanation explanation;
  WEFT_TRY(const PlanReport report, simulate_plan(best.plan, {.profile = options.profile}));
  const auto is_over = [&] { return options.stop != nullptr && options.stop->load(); };
  for (const Pin& pin : PinLister(problem, best).list()) {
    if (is_over()) break;
    if (options.progress) options.progress(fmt::format("explaining: {}", pin.name));
    how.progress = {};
    Result<PlanSearchResult> found = search_plans(problem.model, problem.cluster, problem.workload, pin.space, how);
    if (!found || found->counts.considered == 0) continue;
    Alternative alternative{.name = pin.name};
    if (found->best.empty()) {
      PlanProblem pinned = problem;
      pinned.space = pin.space;
      alternative.reason = found->counts.left > 0 ? "not found in the time given" : why_it_does_not_fit(pinned, how);
    } else {
      // The best plan has this setting already.
      if (found->best.front().candidate == best.candidate) continue;
      alternative.best = std::move(found->best.front());
      alternative.slower_by = alternative.best->step_time_ms / best.step_time_ms - 1;
      WEFT_TRY(const PlanReport other, simulate_plan(alternative.best->plan, {.profile = options.profile}));
      alternative.reason = what_grew(report, other);
    }
    explanation.alternatives.push_back(std::move(alternative));
  }
  std::stable_sort(explanation.alternatives.begin(), explanation.alternatives.end(),
                   [](const Alternative& a, const Alternative& b) {
                     return a.best.has_value() != b.best.has_value() ? a.best.has_value() : a.slower_by < b.slower_by;
                   });
  if (is_over()) return explanation;

  how.progress = {};
  PlanProblem changed = problem;
  changed.cluster.device.memory_gib *= 1.25;
  explanation.what_ifs.push_back(what_if(changed, "25 % more memory", best, 1, how));
  changed = problem;
  changed.cluster.within_node.bandwidth_gb_per_s *= 2;
  explanation.what_ifs.push_back(what_if(changed, "links within a node twice as fast", best, 1, how));
  if (problem.cluster.nodes > 1) {
    changed = problem;
    changed.cluster.between_nodes.bandwidth_gb_per_s *= 2;
    explanation.what_ifs.push_back(what_if(changed, "links between nodes twice as fast", best, 1, how));
  }
  changed = problem;
  changed.workload.global_batch_samples *= 2;
  explanation.what_ifs.push_back(what_if(changed, "twice the global batch", best, 2, how));
  return explanation;
}

}  // namespace weft
