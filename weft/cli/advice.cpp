#include "weft/cli/advice.h"

#include <algorithm>
#include <array>
#include <cmath>

#include <fmt/format.h>

#include "weft/base/clock.h"
#include "weft/base/units.h"
#include "weft/cli/import_text.h"
#include "weft/cli/interrupt.h"
#include "weft/cli/plan_text.h"
#include "weft/cli/table.h"
#include "weft/exchange/export.h"
#include "weft/meaning/check.h"
#include "weft/meaning/plan_strategy.h"
#include "weft/plan/plan_json.h"
#include "weft/search/program_strategies.h"
#include "weft/search/target_space.h"
#include "weft/simulate/plan_simulator.h"

namespace weft {
namespace {

Result<PlanSearchResult> searched(const Plan& plan, const AdviceOptions& options) {
  PlanProblem problem{.model = {}, .cluster = plan.cluster, .workload = plan.workload, .space = options.space};
  WEFT_TRY(problem.model, usual_model(plan));
  if (options.system) {
    WEFT_TRY(problem.space, space_for(*options.system, options.space, problem.model));
  }
  PlanSearchOptions how = options.search;
  how.stop = &stop_on_interrupt();
  const double begin_ms = now_ms();
  WEFT_TRY(PlanSearchResult result, search_plans(problem.model, problem.cluster, problem.workload, problem.space, how));
  if (result.best.empty()) return explain_no_plan(problem, result, how);
  if (!options.system) {
    const double spent_s = (now_ms() - begin_ms) / 1e3;
    how.time_limit_s = std::max(0.0, how.time_limit_s - spent_s);
    WEFT_TRY([[maybe_unused]] const auto gain, improve_by_strategies(problem, how, result, spent_s));
  }
  return result;
}

/// What rounds to nothing is not shown.
constexpr double kLeastShownMs = 0.05;

/// The precision is the user's: no search chooses it. Where what was found does not fit with it, it is the search's.
void keep_precision(const Plan& own, Plan& found) {
  const auto all = [](const Plan& plan) {
    return std::array{plan.precision.compute, plan.precision.master, plan.precision.reduce};
  };
  if (all(own) == all(found)) return;
  Plan kept = found;
  kept.precision = own.precision;
  if (!check_plan(kept, PlanUse::kPrice).empty()) return;
  const auto report = simulate_plan(kept, {});
  if (report && report->fits()) found.precision = own.precision;
}

/// Simulates both on the same batches.
std::optional<Error> compare(const Plan& plan, Advice& advice) {
  keep_precision(plan, advice.after);
  advice.before.batches = advice.after.batches;
  advice.before.batch_seed = advice.after.batch_seed;
  Result<PlanReport> before = simulate_plan(advice.before, {});
  if (!before) return before.error();
  Result<PlanReport> after = simulate_plan(advice.after, {});
  if (!after) return after.error();
  advice.before_report = *std::move(before), advice.after_report = *std::move(after);
  advice.before.predicted = prediction_of(advice.before_report);
  advice.after.predicted = prediction_of(advice.after_report);
  // A plan that does not fit is none, however fast it would be.
  advice.is_better =
      !advice.before_report.fits() || advice.after_report.step_time_ms < advice.before_report.step_time_ms;
  return std::nullopt;
}

std::string memory_text(const PlanReport& report) {
  return fmt::format("{:.1f} GiB{}", report.peak_memory_bytes() / kGiB, report.fits() ? "" : ", does not fit");
}

}  // namespace

Result<Advice> advise(const Plan& plan, const AdviceOptions& options) {
  WEFT_TRY(const PlanSearchResult result, searched(plan, options));
  Advice advice{.before = plan};
  advice.is_optimal = result.is_optimal;
  for (const FoundPlan* found : {&*result.chosen, &result.best.front()}) {
    advice.after = found->plan;
    if (auto error = compare(plan, advice)) return *std::move(error);
    if (advice.is_better) break;
  }
  if (options.system && options.needs_settings) {
    if (const auto files = export_plan(plan, *options.system); !files) {
      advice.has_no_settings = files.error();
      advice.after = result.chosen->plan;
      if (auto error = compare(plan, advice)) return *std::move(error);
      advice.is_better = true;
    }
  }
  if (!advice.is_better) return advice;
  WEFT_TRY(advice.changes, changes_between(advice.before, advice.after));
  return advice;
}

Result<Advice> advise_search(const Plan& problem, const AdviceOptions& options) {
  WEFT_TRY(const PlanSearchResult result, searched(problem, options));
  Advice advice{.before = problem, .after = result.chosen->plan, .is_better = true, .is_optimal = result.is_optimal};
  WEFT_TRY(advice.after_report, simulate_plan(advice.after, {}));
  advice.after.predicted = prediction_of(advice.after_report);
  return advice;
}

std::string to_text(const Advice& advice) {
  const double before_ms = advice.before_report.step_time_ms, after_ms = advice.after_report.step_time_ms;
  Table table;
  table.add({"", "step ms", "samples/s", "fullest device"});
  const auto row = [&](const char* name, const PlanReport& report) {
    table.add({name, fmt::format("{:.1f}", report.step_time_ms), fmt::format("{:.2f}", report.throughput_samples_per_s),
               memory_text(report)});
  };
  row("now", advice.before_report);
  row("found", advice.after_report);
  std::string text = fmt::format("now:   {}\nfound: {}\n\n", settings_line(advice.before), settings_line(advice.after));
  text += table.text();
  if (!advice.is_better)
    return text + fmt::format("nothing faster was found{}\n",
                              advice.is_optimal ? "; nothing in the space that was searched is" : " in the time given");
  if (advice.has_no_settings) text += fmt::format("now has no settings there: {}\n", advice.has_no_settings->message());
  const double share = before_ms / after_ms - 1;
  text += fmt::format("\n{:.1f} % {} samples a second, {:.1f} ms {} a step:\n", 100 * std::abs(share),
                      share < 0 ? "fewer" : "more", std::abs(before_ms - after_ms), share < 0 ? "more" : "less");
  Table changes;
  double left_ms = before_ms - after_ms;
  for (const PlanChange& change : advice.changes) {
    left_ms -= change.saved_ms;
    std::string why;
    for (size_t i = 0; i < std::min<size_t>(3, change.parts.size()); ++i) {
      if (std::abs(change.parts[i].more_ms) < kLeastShownMs) continue;
      why += fmt::format("{}{} {:+.1f}", why.empty() ? "" : ", ", change.parts[i].words, -change.parts[i].more_ms);
    }
    const double more_ms = std::abs(change.saved_ms) < kLeastShownMs ? 0 : -change.saved_ms;
    text += fmt::format("  {:+10.1f} ms  {}{}\n", more_ms, change.words, change.fits ? "" : " (does not fit yet)");
    if (!why.empty()) text += fmt::format("               {}\n", why);
  }
  text += fmt::format("  {:+10.1f} ms  together\n", after_ms - before_ms + left_ms);
  return text;
}

Json to_json(const Advice& advice) {
  Json changes = Json::array();
  for (const PlanChange& change : advice.changes) {
    Json parts = Json::object();
    for (const PartDifference& part : change.parts) parts[part.words] = part.more_ms;
    changes.push_back(
        {{"change", change.words}, {"saved_ms", change.saved_ms}, {"fits", change.fits}, {"parts_ms", parts}});
  }
  return {{"step_time_ms", advice.before_report.step_time_ms},
          {"found_step_time_ms", advice.after_report.step_time_ms},
          {"is_better", advice.is_better},
          {"has_settings", !advice.has_no_settings},
          {"optimal", advice.is_optimal},
          {"changes", std::move(changes)},
          {"plan", plan_to_json(advice.answer())}};
}

}  // namespace weft
