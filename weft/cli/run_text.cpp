#include "weft/cli/run_text.h"

#include <cmath>

#include <fmt/format.h>

#include "weft/base/counted.h"
#include "weft/base/text.h"
#include "weft/base/units.h"
#include "weft/cli/table.h"

namespace weft {
namespace {

constexpr size_t kMostRows = 32;

std::string ms_text(double ms) {
  return std::abs(ms) < 10 ? fmt::format("{:.3f}", ms) : fmt::format("{:.1f}", ms);
}

std::string error_text(const Compared& compared) {
  if (compared.measured <= 0) return "-";
  return fmt::format("{:+.1f} %", compared.error_percent());
}

std::string noise_text(const RunComparison& comparison) {
  return fmt::format("{:+.1f} %, noise {:.1f} %", comparison.step_ms.error_percent(), comparison.noise_percent);
}

std::string memory_text(const Compared& memory) {
  return fmt::format("{} predicted, {} measured ({:+.1f} %)", format_bytes(memory.predicted),
                     format_bytes(memory.measured), memory.error_percent());
}

std::string terms_table(const RunComparison& comparison) {
  Table table;
  table.add({"ms of the step, mean of the ranks", "predicted", "measured", "difference", "of the step"});
  for (const ComparedTerm& term : comparison.terms) {
    table.add({term.name, ms_text(term.ms.predicted), ms_text(term.ms.measured),
               fmt::format("{:+.3f}", term.ms.difference()),
               fmt::format("{:+.1f} %", 100 * term.ms.difference() / comparison.step_ms.measured)});
  }
  return table.text();
}

std::string actions_table(const RunComparison& comparison) {
  Table table;
  table.add({"action", "a step", "predicted ms", "measured ms", "error", "communication", "measured"});
  for (const ComparedActions& action : comparison.actions) {
    const bool has_inside = action.communication_ms.predicted > 5e-4 || action.communication_ms.measured > 5e-4;
    table.add({std::string(name_of(action.kind)), fmt::format("{}", action.count), ms_text(action.ms.predicted),
               ms_text(action.ms.measured), action.is_compute ? error_text(action.ms) : "-",
               has_inside ? ms_text(action.communication_ms.predicted) : "-",
               has_inside ? ms_text(action.communication_ms.measured) : "-"});
  }
  return table.text();
}

std::string ranks_table(const RunComparison& comparison) {
  Table table;
  table.add({"rank", "busy ms", "measured", "error", "waiting ms", "measured", "memory", "measured", "error"});
  for (size_t i = 0; i < std::min(kMostRows, comparison.ranks.size()); ++i) {
    const ComparedRank& rank = comparison.ranks[i];
    const auto& memory = rank.memory_bytes;
    table.add({fmt::format("{}", rank.rank), ms_text(rank.busy_ms.predicted), ms_text(rank.busy_ms.measured),
               error_text(rank.busy_ms), ms_text(rank.waiting_ms.predicted), ms_text(rank.waiting_ms.measured),
               memory ? format_bytes(memory->predicted) : "-", memory ? format_bytes(memory->measured) : "-",
               memory ? error_text(*memory) : "-"});
  }
  std::string text = table.text();
  if (comparison.ranks.size() > kMostRows)
    text += fmt::format("and {} more; --json has all\n", counted(std::ssize(comparison.ranks) - kMostRows, "rank"));
  return text;
}

std::string steps_table(const RunComparison& comparison) {
  Table table;
  table.add({"step", "predicted ms", "measured ms", "error", "memory", "measured", "error"});
  for (const ComparedStep& step : comparison.steps) {
    const auto& memory = step.memory_bytes;
    table.add({fmt::format("{}{}", step.step, step.is_warm_up ? " (warm-up)" : ""), ms_text(step.ms.predicted),
               ms_text(step.ms.measured), error_text(step.ms), memory ? format_bytes(memory->predicted) : "-",
               memory ? format_bytes(memory->measured) : "-", memory ? error_text(*memory) : "-"});
  }
  return table.text();
}

std::string errors_line(const std::string& name, const std::vector<RunSummary>& runs) {
  const RunErrors steps = step_errors(runs);
  const RunErrors memory = memory_errors(runs);
  std::string line =
      fmt::format("{}: {}, step time mean {:.1f} %, worst {:+.1f} %, noise {:.1f} %", name, counted(steps.runs, "run"),
                  steps.mean_percent, steps.worst_percent, steps.mean_noise_percent);
  if (memory.runs > 0)
    line += fmt::format("; memory mean {:.1f} %, worst {:+.1f} %", memory.mean_percent, memory.worst_percent);
  return line + "\n";
}

Json errors_json(const std::vector<RunSummary>& runs) {
  const RunErrors steps = step_errors(runs);
  const RunErrors memory = memory_errors(runs);
  Json json = {{"runs", steps.runs},
               {"mean_step_time_error_percent", steps.mean_percent},
               {"worst_step_time_error_percent", steps.worst_percent},
               {"worst_run", steps.worst_run},
               {"mean_noise_percent", steps.mean_noise_percent}};
  json["mean_memory_error_percent"] = memory.runs > 0 ? Json(memory.mean_percent) : Json();
  json["worst_memory_error_percent"] = memory.runs > 0 ? Json(memory.worst_percent) : Json();
  return json;
}

}  // namespace

std::string short_text(const RunComparison& comparison) {
  std::string text =
      fmt::format("prediction  {} ms a step predicted, {} measured ({})\n", ms_text(comparison.step_ms.predicted),
                  ms_text(comparison.step_ms.measured), noise_text(comparison));
  if (const ComparedRank* fullest = comparison.fullest())
    text += fmt::format("            {}\n", memory_text(*fullest->memory_bytes));
  return text;
}

std::string to_text(const RunComparison& comparison) {
  std::string text =
      fmt::format("step time   {} ms predicted, {} ms measured ({})\n", ms_text(comparison.step_ms.predicted),
                  ms_text(comparison.step_ms.measured), noise_text(comparison));
  if (const ComparedRank* fullest = comparison.fullest()) {
    text += fmt::format("memory      rank {}: {}, by {}\n", fullest->rank, memory_text(*fullest->memory_bytes),
                        comparison.memory_from);
  }
  text += "\n" + terms_table(comparison);
  text += "\n" + actions_table(comparison);
  text += "\n" + ranks_table(comparison);
  text += "\n" + steps_table(comparison);
  const ComparedTerm& worst = comparison.most_wrong();
  text += fmt::format("\nmost wrong  {}: {:+.3f} ms, {:+.1f} % of the step\n            {}\n", worst.name,
                      worst.ms.difference(), 100 * worst.ms.difference() / comparison.step_ms.measured, worst.mend);
  for (const std::string& warning : comparison.warnings) text += "warning: " + warning + "\n";
  return text;
}

std::string to_text(const std::vector<RunSummary>& runs) {
  Table table;
  table.add({"run", "model", "step time", "noise", "memory", "profile"});
  for (const RunSummary& run : runs) {
    table.add({run.run, printable(run.model, run.model.size()), fmt::format("{:+.1f} %", run.step_time_error_percent),
               fmt::format("{:.1f} %", run.noise_percent),
               run.memory_error_percent ? fmt::format("{:+.1f} %", *run.memory_error_percent) : "-",
               run.profile.empty() ? "none" : printable(run.profile, run.profile.size())});
  }
  std::string text = table.text() + errors_line("all", runs);
  for (const auto field : {&RunSummary::model, &RunSummary::device}) {
    const auto groups = grouped_by(runs, field);
    for (const auto& [name, own] : groups) text += errors_line(printable(name, name.size()), own);
  }
  return text;
}

Json to_json(const std::vector<RunSummary>& runs) {
  Json json = errors_json(runs);
  json["rows"] = Json::array();
  for (const RunSummary& run : runs) {
    json["rows"].push_back(
        {{"run", run.run},
         {"model", run.model},
         {"device", run.device},
         {"profile", run.profile.empty() ? Json() : Json(run.profile)},
         {"step_time_error_percent", run.step_time_error_percent},
         {"noise_percent", run.noise_percent},
         {"memory_error_percent", run.memory_error_percent ? Json(*run.memory_error_percent) : Json()}});
  }
  for (const auto& [key, field] : {std::pair{"by_model", &RunSummary::model}, {"by_device", &RunSummary::device}}) {
    json[key] = Json::object();
    for (const auto& [name, own] : grouped_by(runs, field)) json[key][name] = errors_json(own);
  }
  return json;
}

}  // namespace weft
