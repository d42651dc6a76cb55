#include "weft/cli/plan_text.h"

#include <cmath>

#include <fmt/format.h>

#include "weft/base/byte_unit.h"
#include "weft/base/counted.h"
#include "weft/base/text.h"
#include "weft/base/units.h"
#include "weft/cli/table.h"
#include "weft/exchange/target_limits.h"
#include "weft/search/best_plans.h"
#include "weft/search/choose_plan.h"

namespace weft {
namespace {

std::string recomputed_text(std::span<const RecomputeRun> recompute) {
  std::vector<std::string> parts;
  const int64_t full = count_of(recompute, BlockRecompute::kFull);
  const int64_t attention = count_of(recompute, BlockRecompute::kAttention);
  if (full > 0) parts.push_back(fmt::format("{} recomputed", full));
  if (attention > 0) parts.push_back(fmt::format("{} attention only", attention));
  return parts.empty() ? "" : fmt::format(" ({})", fmt::join(parts, ", "));
}

std::string settings_of(const FoundPlan& found) {
  return found.candidate.text(found.plan) + (strategy_of(found.plan).empty() ? "" : ", with a strategy");
}

/// One with a strategy and one without may have the same settings.
bool is_chosen(const FoundPlan& found, const PlanSearchResult& result) {
  return result.chosen->candidate == found.candidate && strategy_of(result.chosen->plan) == strategy_of(found.plan);
}

bool is_fastest(const PlanSearchResult& result) {
  return is_chosen(result.best.front(), result);
}

std::string slower_text(double slower_by) {
  if (std::abs(slower_by) <= kTie) return "as fast";
  return fmt::format("{} {}", format_percent(std::abs(slower_by)), slower_by < 0 ? "faster" : "slower");
}

/// How near the mean step of all batches that there could be lies.
std::string error_text(const FoundPlan& found) {
  return fmt::format("± {}", format_percent(spread_of(found.steps_ms).error_ms / found.step_time_ms));
}

constexpr std::string_view kThisPlan = "this plan";

/// What was done beyond the space.
std::string improved_text(const PlanSearchResult& result) {
  const double step_ms = result.best.front().step_time_ms;
  if (result.improved_by > 0) {
    return fmt::format("then improved by {}, one setting after another: {:.1f} ms{}\n",
                       format_percent(result.improved_by), step_ms,
                       result.is_beyond_space ? ", beyond this space" : "");
  }
  return result.is_beyond_space ? fmt::format("the fastest, {:.1f} ms, lies beyond this space\n", step_ms) : "";
}

/// What was not drawn is slower for the mean batch, which is hardly ever the slower one.
std::string drawn_text(const PlanSearchResult& result) {
  const std::string compared =
      fmt::format("{} on {} drawn batches, the same for all", counted(result.num_drawn, "plan"), result.batches);
  std::string text = is_fastest(result) ? fmt::format("best of {}, to {}: ", compared, error_text(result.best.front()))
                                        : fmt::format("compared {}: ", compared);
  if (result.is_optimal) {
    text += "every other in this space is slower even for their mean batch";
    return text + (is_fastest(result) ? "\n" : ", and those simpler than the chosen one by more than the margin\n");
  }
  return text +
         fmt::format("not proven, nothing in this space is faster than {:.1f} ms for their mean batch, {} below{}\n",
                     result.bound_ms, format_percent(result.gap()),
                     is_fastest(result) ? "" : " the fastest that was found");
}

std::string proof_text(const PlanSearchResult& result, std::string_view of_what) {
  if (result.batches > 0) return drawn_text(result) + improved_text(result);
  if (result.improved_by > 0) {
    return (result.is_optimal ? fmt::format("optimal in this space: {:.1f} ms\n", result.bound_ms)
                              : fmt::format("not proven optimal: nothing in this space is faster than {:.1f} ms\n",
                                            result.bound_ms)) +
           improved_text(result);
  }
  if (result.is_optimal) {
    return of_what == kThisPlan
               ? "optimal: nothing in this space is faster\n"
               : fmt::format("optimal: nothing in this space is faster than {:.1f} ms\n", result.bound_ms);
  }
  return fmt::format("not proven optimal: nothing in this space is faster than {:.1f} ms, {} below {}\n",
                     result.bound_ms, format_percent(result.gap()), of_what);
}

std::string choice_text(const PlanSearchResult& result) {
  if (is_fastest(result)) return "";
  const FoundPlan& fastest = result.best.front();
  const bool is_of_space = result.is_optimal && !result.is_beyond_space;
  std::string text =
      fmt::format("fastest {}: {:.1f} ms", is_of_space ? "in this space" : "that was found", fastest.step_time_ms);
  if (result.batches > 0) text += " " + error_text(fastest);
  return text + fmt::format(" with {}\nchosen: {}, {}, because {}\n", settings_of(fastest), settings_of(*result.chosen),
                            slower_text(result.chosen->step_time_ms / fastest.step_time_ms - 1),
                            why_chosen(*result.chosen, fastest));
}

/// Parts in tenths of a ms, rounded so that what is shown adds up.
std::string difference_text(const std::vector<PartDifference>& parts) {
  double sum_ms = 0;
  for (const PartDifference& part : parts) sum_ms += part.more_ms;
  std::vector<int64_t> tenths;
  int64_t left = std::llround(sum_ms * 10);
  for (const PartDifference& part : parts) {
    tenths.push_back(std::llround(part.more_ms * 10));
    left -= tenths.back();
  }
  // The parts whose rounding took most away, or added most, take what is left.
  while (left != 0) {
    const int64_t step = left > 0 ? 1 : -1;
    size_t most = 0;
    const auto lost = [&](size_t i) {
      return static_cast<double>(step) * (parts[i].more_ms * 10 - static_cast<double>(tenths[i]));
    };
    for (size_t i = 1; i < parts.size(); ++i) most = lost(i) > lost(most) ? i : most;
    tenths[most] += step;
    left -= step;
  }
  std::vector<std::string> words;
  for (size_t i = 0; i < parts.size(); ++i) {
    if (tenths[i] == 0) continue;
    words.push_back(fmt::format("{:.1f} ms {} for {}", std::abs(static_cast<double>(tenths[i])) / 10,
                                tenths[i] > 0 ? "more" : "less", parts[i].words));
  }
  return words.empty() ? "the same parts" : fmt::format("{}", fmt::join(words, ", "));
}

/// Whether some layer with a strategy was not measured itself.
bool is_relative(const PlanReport& report) {
  if (!report.profile) return false;
  const std::vector<BlockSource>& blocks = report.profile->blocks;
  return std::any_of(blocks.begin(), blocks.end(),
                     [](const BlockSource& source) { return source.kind == BlockSource::Kind::kRelative; });
}

}  // namespace

std::string layers_text(const Plan& plan) {
  std::string text;
  for (const ModulePlan& module : plan.modules) {
    std::vector<std::string> stages;
    for (size_t rank = 0; rank < module.layers.size(); ++rank) {
      std::vector<std::string> chunks;
      for (size_t chunk = 0; chunk < module.layers[rank].size(); ++chunk)
        chunks.push_back(
            fmt::format("{}{}", module.layers[rank][chunk], recomputed_text(module.recompute_of(rank, chunk))));
      stages.push_back(fmt::format("{}", fmt::join(chunks, "+")));
    }
    text += module.is_in_pipeline()
                ? fmt::format("{} layers by pipeline rank: {}\n", name_of(module.kind), fmt::join(stages, ", "))
                : fmt::format("{} layers: {}\n", name_of(module.kind), fmt::join(stages, ", "));
  }
  return text;
}

std::string search_text(const PlanSearchResult& result, const StrategyGain* gain) {
  const SearchCounts& c = result.counts;
  std::string text = fmt::format(
      "{} candidates: {} slower by their work alone, {} by their schedule, {} in any placement that fits, {} over "
      "memory, {} placed and simulated",
      with_commas(c.considered), with_commas(c.slower_by_work), with_commas(c.slower_by_schedule),
      with_commas(c.slower_by_placement), with_commas(c.over_memory), with_commas(c.evaluated));
  if (c.not_expressed > 0) text += fmt::format(", {} without settings of the system", with_commas(c.not_expressed));
  if (c.left > 0) text += fmt::format(", {} not looked at", with_commas(c.left));
  text += "\n";
  // Of strategies nothing is proven.
  text += gain != nullptr && gain->usual
              ? "with the usual strategy, " + proof_text(*gain->usual, "the fastest that was found")
              : proof_text(result, is_fastest(result) ? kThisPlan : "the fastest that was found");
  return text + choice_text(result);
}

std::string strategy_text(const StrategyGain& gain, const PlanReport& report, bool explains) {
  size_t num_operators = 0;
  std::string lines;
  for (const StrategyOf& each : gain.strategy) {
    for (const auto& [kind, entries] : each.strategy.blocks) {
      num_operators += entries.size();
      std::vector<std::string> words;
      for (const StrategyEntry& entry : entries)
        words.push_back(fmt::format("{} {}", entry.pattern, entry.words.front().second));
      if (words.empty()) words.emplace_back("as usual, with rows kept that would be gathered again");
      lines += fmt::format("  {} {}: {}\n", name_of(each.module), kind, fmt::join(words, ", "));
    }
  }
  std::string text = fmt::format(
      "a strategy of its own for {} saves {:.2f} % of the fastest step with the usual one ({:.3f} -> {:.3f} ms), of {} "
      "that were tried\n",
      num_operators > 0 ? counted(static_cast<int64_t>(num_operators), "operator") : "layers",
      100 * (1 - gain.ms / gain.usual_ms), gain.usual_ms, gain.ms, gain.num_tried);
  for (const ModuleGain& module : gain.modules)
    text += fmt::format("  layers of {}: {:.3f} -> {:.3f} ms a microbatch\n", name_of(module.module), module.usual_ms,
                        module.ms);
  if (is_relative(report)) text += "  priced by formulas relative to measured layers\n";
  return explains ? text + lines : text;
}

std::string headroom_text(const Plan& plan, const PlanReport& report, double memory_margin) {
  const double free_bytes = report.memory_limit_bytes - report.peak_memory_bytes();
  std::string text = fmt::format("headroom: {} of a device, {}", format_memory(free_bytes),
                                 format_percent(free_bytes / report.memory_limit_bytes));
  if (memory_margin > 0) text += fmt::format(" (at least {} was asked for)", format_percent(memory_margin));
  std::vector<std::string> systems;
  for (const Target target : expressed_by(plan)) systems.push_back(name_of(target));
  if (!systems.empty()) return text + fmt::format("\nexports to {}\n", fmt::join(systems, ", "));
  const bool is_program = plan.model.numbers.program.has_value();
  return text + "\nexports to no other system" +
         (is_program ? ", since none reads programs\n" : "; --for SYSTEM looks for a plan that does\n");
}

std::string comparison_text(const PlanSearchResult& result) {
  Table table;
  table.add({"settings", "step ms", "slower by"});
  const FoundPlan& fastest = result.best.front();
  size_t num_ties = 0;
  const auto add = [&](const FoundPlan& found) {
    const bool is_marked = !is_fastest(result) && is_chosen(found, result);
    table.add({settings_of(found) + (is_marked ? " (chosen)" : ""), fmt::format("{:.1f}", found.step_time_ms),
               format_percent(found.step_time_ms / fastest.step_time_ms - 1)});
    num_ties += found.ties.size();
  };
  bool has_chosen = false;
  for (const FoundPlan& found : result.best) {
    add(found);
    has_chosen |= is_chosen(found, result);
  }
  if (!has_chosen) add(*result.chosen);
  std::string text = table.text();
  if (num_ties > 0) {
    text += fmt::format("{} that {} as fast as one of these and no simpler {} left out\n",
                        counted(static_cast<int64_t>(num_ties), "plan"), num_ties == 1 ? "is" : "are",
                        num_ties == 1 ? "is" : "are");
  }
  return text;
}

std::string target_text(Target target, const FoundPlan& chosen, const PlanSearchResult& free) {
  if (free.best.empty())
    return fmt::format("for {}: the search of the whole space found no plan in the time given\n", name_of(target));
  const FoundPlan& fastest = free.best.front();
  const double slower_by = chosen.step_time_ms / fastest.step_time_ms - 1;
  return fmt::format("for {}: {} {} the fastest plan of the whole space, {:.1f} ms with {}\n", name_of(target),
                     slower_text(slower_by), std::abs(slower_by) <= kTie ? "as" : "than", fastest.step_time_ms,
                     settings_of(fastest));
}

std::string to_text(const Explanation& explanation) {
  std::string text;
  if (explanation.faster_by > 0)
    text += fmt::format("explaining found a plan that is {} faster than all before, which is the fastest now\n\n",
                        format_percent(explanation.faster_by));
  text += "Why not\n";
  for (const Alternative& a : explanation.alternatives) {
    const std::string names = fmt::format("{}", fmt::join(a.names, "; "));
    if (a.best) {
      const char* known = a.is_proven || a.slower_by <= kTie ? "" : "at most ";
      text += fmt::format("  {}: {}{} ({:.1f} ms), {}\n", names, known, slower_text(a.slower_by), a.best->step_time_ms,
                          difference_text(a.parts));
      text += fmt::format("    with {}\n", settings_of(*a.best));
    } else {
      text += fmt::format("  {}: {}\n", names, a.reason);
    }
  }
  text += "What would change the answer\n";
  for (const WhatIf& w : explanation.what_ifs) {
    if (!w.best) {
      text += fmt::format("  {}: nothing fits\n", w.change);
      continue;
    }
    text += fmt::format("  {}: {} {}, {}\n", w.change, format_percent(std::abs(w.throughput_gain)),
                        w.throughput_gain < 0 ? "fewer samples a second" : "more samples a second",
                        w.keeps_settings ? "with the same settings" : "with " + settings_of(*w.best));
  }
  return text;
}

Json to_json(const Explanation& explanation) {
  Json alternatives = Json::array(), what_ifs = Json::array();
  for (const Alternative& a : explanation.alternatives) {
    Json json = {{"names", a.names}, {"fits", a.best.has_value()}};
    json["reason"] = a.best ? difference_text(a.parts) : a.reason;
    if (a.best) {
      json["parts_ms"] = Json::object();
      for (const PartDifference& part : a.parts) json["parts_ms"][part.words] = part.more_ms;
      json["step_time_ms"] = a.best->step_time_ms;
      json["slower_by"] = a.slower_by;
      json["proven"] = a.is_proven;
      json["settings"] = settings_of(*a.best);
    }
    alternatives.push_back(std::move(json));
  }
  for (const WhatIf& w : explanation.what_ifs) {
    Json json = {{"change", w.change}, {"fits", w.best.has_value()}};
    if (w.best) {
      json["step_time_ms"] = w.best->step_time_ms;
      json["throughput_gain"] = w.throughput_gain;
      json["keeps_settings"] = w.keeps_settings;
      json["settings"] = settings_of(*w.best);
    }
    what_ifs.push_back(std::move(json));
  }
  return {{"alternatives", std::move(alternatives)},
          {"what_ifs", std::move(what_ifs)},
          {"faster_by", explanation.faster_by}};
}

Json to_json(const StrategyGain& gain, const PlanReport& report) {
  Json json = {{"usual_ms", gain.usual_ms}, {"step_time_ms", gain.ms}, {"num_tried", gain.num_tried}};
  if (gain.usual) {
    const PlanSearchResult& usual = *gain.usual;
    json["usual"] = {{"optimal", usual.is_optimal},
                     {"bound_ms", usual.bound_ms},
                     {"gap", usual.gap()},
                     {"improved_by", usual.improved_by},
                     {"beyond_space", usual.is_beyond_space},
                     {"num_drawn", usual.num_drawn}};
  }
  for (const ModuleGain& module : gain.modules)
    json["layers"][std::string(name_of(module.module))] = {{"usual_ms", module.usual_ms}, {"ms", module.ms}};
  if (report.profile) json["relative_to_measured_layers"] = is_relative(report);
  return json;
}

Json to_json(const SearchCounts& counts) {
  return {{"considered", counts.considered},
          {"slower_by_work", counts.slower_by_work},
          {"slower_by_schedule", counts.slower_by_schedule},
          {"slower_by_placement", counts.slower_by_placement},
          {"over_memory", counts.over_memory},
          {"not_expressed", counts.not_expressed},
          {"evaluated", counts.evaluated},
          {"left", counts.left}};
}

}  // namespace weft
