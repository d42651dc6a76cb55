#include "weft/cli/import_text.h"

#include <array>

#include <fmt/format.h>

#include "weft/base/text.h"
#include "weft/cli/report_text.h"
#include "weft/exchange/refusals.h"
#include "weft/plan/mbs_scale.h"
#include "weft/plan/plan_json.h"

namespace weft {
namespace {

std::string place_text(const ImportedRun& run, Place place) {
  if (place.line == 0 || place.file >= run.file_names.size()) return "";
  return fmt::format("{}:{}", run.file_names[place.file], place.line);
}

std::string degrees_text(const ModulePlan& module) {
  std::string text = fmt::format("{} tp {}, pp {}, dp {}", name_of(module.kind), module.tp, module.pp, module.dp);
  if (module.cp > 1) text += fmt::format(", cp {} (ulysses {})", module.cp, module.cp_ulysses);
  if (module.ep > 1) text += fmt::format(", ep {}{}", module.ep, module.experts_over_tp ? " over tp" : "");
  if (module.vpp > 1) text += fmt::format(", {} chunks a rank", module.vpp);
  if (module.zero > 0) text += fmt::format(", zero {}", module.zero);
  if (module.sequence_parallel) text += ", sequence parallel";
  return text;
}

}  // namespace

std::string keys_text(const ImportedRun& run) {
  std::string text;
  for (const KeyFate fate : {KeyFate::kRead, KeyFate::kDefault, KeyFate::kIgnored, KeyFate::kNotUnderstood}) {
    std::string rows;
    for (const ImportedKey& key : run.keys) {
      if (key.fate != fate) continue;
      const std::string place = place_text(run, key.place);
      const std::string row = fmt::format("{}{}{}: {}", key.key, key.value.empty() ? "" : " = " + key.value,
                                          place.empty() ? "" : fmt::format(" ({})", place), key.meaning);
      rows += fmt::format("  {}\n", printable_line(row));
    }
    if (!rows.empty()) text += fmt::format("{}\n{}", name_of(fate), rows);
  }
  for (const std::string& note : run.notes) text += fmt::format("note: {}\n", printable_line(note));
  if (run.config.is_null()) text += fmt::format("note: no training configuration: {}\n", printable_line(run.no_config));
  return text;
}

std::string settings_line(const Plan& plan) {
  std::string text = degrees_text(plan.llm());
  text += fmt::format(", mbs {} x {}, {}", plan.schedule.mbs, plan.schedule.microbatches, plan.schedule.name);
  for (const ModulePlan& module : plan.modules) {
    if (!module.is_encoder()) continue;
    text += module.placement == ModulePlacement::kInline
                ? fmt::format("; {} inline", name_of(module.kind))
                : fmt::format("; {} {}, mbs_scale {}", degrees_text(module), name_of(module.placement),
                              mbs_scale_text(module));
  }
  return text;
}

Json import_json(const ImportedRun& run, const PlanReport& report) {
  Json keys = Json::array();
  for (const ImportedKey& key : run.keys) {
    Json row = {
        {"key", key.key}, {"value", key.value}, {"fate", std::string(name_of(key.fate))}, {"meaning", key.meaning}};
    if (key.place.line > 0 && key.place.file < run.file_names.size()) {
      row["file"] = run.file_names[key.place.file];
      row["line"] = key.place.line;
    }
    keys.push_back(std::move(row));
  }
  return {{"version", run.version},
          {"keys", std::move(keys)},
          {"notes", run.notes},
          {"config", run.config},
          {"step_time_ms", report.step_time_ms},
          {"fits", report.fits()},
          {"plan", plan_to_json(run.plan)}};
}

}  // namespace weft
