#include "weft/cli/plan_text.h"

#include <cmath>

#include <fmt/format.h>

#include "weft/base/counted.h"
#include "weft/base/text.h"
#include "weft/base/units.h"
#include "weft/cli/table.h"

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
  return found.candidate.text(found.plan);
}

std::string drawn_text(const PlanSearchResult& result) {
  const FoundPlan& best = result.best.front();
  const double error = spread_of(best.steps_ms).error_ms / best.step_time_ms;
  std::string text =
      fmt::format("best of {} on {} drawn batches, the same for all, to ± {}: ", counted(result.num_drawn, "plan"),
                  result.batches, format_percent(error));
  if (result.is_optimal) return text + "every other in this space is slower even for their mean batch\n";
  return text +
         fmt::format("not proven, nothing in this space is faster than {:.1f} ms for their mean batch, {} below\n",
                     result.bound_ms, format_percent(result.gap()));
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

std::string search_text(const PlanSearchResult& result) {
  const SearchCounts& c = result.counts;
  std::string text = fmt::format(
      "{} candidates: {} slower by their work alone, {} by their schedule, {} in any placement that fits, {} over "
      "memory, {} placed and simulated",
      with_commas(c.considered), with_commas(c.slower_by_work), with_commas(c.slower_by_schedule),
      with_commas(c.slower_by_placement), with_commas(c.over_memory), with_commas(c.evaluated));
  if (c.left > 0) text += fmt::format(", {} not looked at", with_commas(c.left));
  text += "\n";
  if (result.batches > 0) return text + drawn_text(result);
  if (result.is_optimal) return text + "optimal: nothing in this space is faster\n";
  return text + fmt::format("not proven optimal: nothing in this space is faster than {:.1f} ms, {} below this plan\n",
                            result.bound_ms, format_percent(result.gap()));
}

std::string comparison_text(const std::vector<FoundPlan>& best) {
  Table table;
  table.add({"settings", "step ms", "slower by"});
  for (const FoundPlan& found : best) {
    table.add({settings_of(found), fmt::format("{:.1f}", found.step_time_ms),
               format_percent(found.step_time_ms / best.front().step_time_ms - 1)});
  }
  return table.text();
}

std::string to_text(const Explanation& explanation) {
  std::string text = "Why not\n";
  for (const Alternative& a : explanation.alternatives) {
    if (a.best) {
      text += fmt::format("  {}: {} slower ({:.1f} ms), {}\n", a.name, format_percent(a.slower_by),
                          a.best->step_time_ms, a.reason);
      text += fmt::format("    with {}\n", settings_of(*a.best));
    } else {
      text += fmt::format("  {}: {}\n", a.name, a.reason);
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
    Json json = {{"name", a.name}, {"fits", a.best.has_value()}, {"reason", a.reason}};
    if (a.best) {
      json["step_time_ms"] = a.best->step_time_ms;
      json["slower_by"] = a.slower_by;
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
  return {{"alternatives", std::move(alternatives)}, {"what_ifs", std::move(what_ifs)}};
}

Json to_json(const SearchCounts& counts) {
  return {{"considered", counts.considered},
          {"slower_by_work", counts.slower_by_work},
          {"slower_by_schedule", counts.slower_by_schedule},
          {"slower_by_placement", counts.slower_by_placement},
          {"over_memory", counts.over_memory},
          {"evaluated", counts.evaluated},
          {"left", counts.left}};
}

}  // namespace weft
