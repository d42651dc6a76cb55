#include "weft/cli/report_text.h"

#include <algorithm>

#include <fmt/format.h>

#include "weft/base/byte_unit.h"
#include "weft/base/counted.h"
#include "weft/base/units.h"
#include "weft/cli/profile_text.h"
#include "weft/cli/table.h"

namespace weft {
namespace {

/// Rows that are the same are shown once.
template <typename Same>
std::vector<std::pair<std::string, const ScheduleRowReport*>> grouped(const PlanReport& report, Same same) {
  std::vector<std::pair<std::string, const ScheduleRowReport*>> groups;
  size_t first = 0;
  for (size_t i = 1; i <= report.rows.size(); ++i) {
    if (i < report.rows.size() && same(report.rows[first], report.rows[i])) continue;
    const std::string name =
        i - first == 1 ? report.rows[first].name : fmt::format("{} to {}", report.rows[first].name, i - 1);
    groups.emplace_back(name, &report.rows[first]);
    first = i;
  }
  return groups;
}

bool is_close(double a, double b) {
  return std::abs(a - b) <= 5e-4 * std::max({1e-3, std::abs(a), std::abs(b)});
}

std::string time_table(const PlanReport& report) {
  Table table;
  std::vector<std::string> header = {"ms a step"};
  std::vector<const TimePart*> shown;
  for (const TimePart& part : kTimeParts) {
    const bool is_used = std::any_of(report.rows.begin(), report.rows.end(),
                                     [&](const ScheduleRowReport& row) { return row.time.*part.value >= 5e-4; });
    if (!is_used) continue;
    shown.push_back(&part);
    header.emplace_back(part.heading);
  }
  table.add(header);
  const auto same = [](const ScheduleRowReport& a, const ScheduleRowReport& b) {
    return std::all_of(kTimeParts.begin(), kTimeParts.end(),
                       [&](const TimePart& part) { return is_close(a.time.*part.value, b.time.*part.value); });
  };
  for (const auto& [name, row] : grouped(report, same)) {
    std::vector<std::string> cells = {name};
    for (const TimePart* part : shown) cells.push_back(fmt::format("{:.1f}", row->time.*part->value));
    table.add(cells);
  }
  return table.text();
}

std::string memory_table(const PlanReport& report) {
  Table table;
  const ByteUnit unit = byte_unit_for(report.fullest().memory.total());
  std::vector<std::string> header = {unit.name};
  for (const MemoryPart& part : kMemoryParts) header.emplace_back(part.heading);
  header.emplace_back("in all");
  table.add(header);
  const auto same = [](const ScheduleRowReport& a, const ScheduleRowReport& b) {
    return std::all_of(kMemoryParts.begin(), kMemoryParts.end(),
                       [&](const MemoryPart& part) { return is_close(a.memory.*part.value, b.memory.*part.value); });
  };
  for (const auto& [name, row] : grouped(report, same)) {
    std::vector<std::string> cells = {name};
    for (const MemoryPart& part : kMemoryParts) cells.push_back(unit.number(row->memory.*part.value));
    cells.push_back(unit.number(row->memory.total()));
    table.add(cells);
  }
  return table.text();
}

/// Beside the utilization of a cluster that nobody calibrated.
std::string calibration_remark(const PlanReport& report) {
  if (!report.calibrated_to.empty()) return "";
  const DefaultError error = default_error();
  return fmt::format(
      " (cluster not calibrated: defaults missed {} published runs by {:.0f} % on average, {:.0f} % at most)",
      error.runs, error.mean_percent, error.max_percent);
}

}  // namespace

std::string memory_summary(const PlanReport& report) {
  const ScheduleRowReport& row = report.fullest();
  const MemoryPart& largest = largest_part(row.memory);
  const double over = row.memory.total() - report.memory_limit_bytes;
  return fmt::format("{} needs {}, {} {} the device's {}; the largest part: {} ({})", row.name,
                     format_memory(row.memory.total()), format_memory(std::abs(over)),
                     over > 0 ? "more than" : "less than", format_memory(report.memory_limit_bytes), largest.heading,
                     format_memory(row.memory.*largest.value));
}

Json calibration_json(const PlanReport& report) {
  const bool is_calibrated = !report.calibrated_to.empty();
  Json json = {{"calibrated", is_calibrated}};
  if (is_calibrated) {
    json["to"] = report.calibrated_to;
    return json;
  }
  const DefaultError error = default_error();
  json["default_runs"] = error.runs;
  json["default_mean_error_percent"] = error.mean_percent;
  json["default_max_error_percent"] = error.max_percent;
  return json;
}

std::string to_text(const Plan& plan, const PlanReport& report) {
  std::string text = fmt::format("{} on {} of {}, {} a step\n", plan.model.name, counted(plan.world_size, "device"),
                                 plan.cluster.name, counted(plan.workload.global_batch_samples, "sample"));
  text += fmt::format("step {:.1f} ms", report.step_time_ms);
  if (report.batches > 0) {
    const StepSpread& spread = report.spread;
    text += fmt::format(
        " (mean of {} drawn batches, {:.1f} to {:.1f}, four in five of them {:.1f} to {:.1f}; mean batch {:.1f})",
        report.batches, spread.shortest_ms, spread.longest_ms, spread.p10_ms, spread.p90_ms,
        report.mean_batch_step_time_ms);
  }
  text += fmt::format("\n{:.2f} samples/s, {:.1f} tokens/s a device, model FLOPs utilization {}{}, idle {}\n",
                      report.throughput_samples_per_s, report.tokens_per_s_per_device,
                      format_percent(report.model_flops_utilization), calibration_remark(report),
                      format_percent(report.bubble_fraction));
  text += "\n" + time_table(report) + "\n" + memory_table(report);
  text += fmt::format("{}: {}\n", report.fits() ? "fits" : "DOES NOT FIT", memory_summary(report));
  text += profile_text(report);
  for (const std::string& warning : report.warnings) text += "warning: " + warning + "\n";
  return text;
}

Json to_json(const StepSpread& spread) {
  return {{"mean_ms", spread.mean_ms},         {"error_ms", spread.error_ms}, {"deviation_ms", spread.deviation_ms},
          {"shortest_ms", spread.shortest_ms}, {"p10_ms", spread.p10_ms},     {"p90_ms", spread.p90_ms},
          {"longest_ms", spread.longest_ms}};
}

Json to_json(const PlanReport& report) {
  Json rows = Json::array();
  for (const ScheduleRowReport& row : report.rows) {
    Json time = Json::object(), memory = Json::object();
    for (const TimePart& part : kTimeParts) time[part.key] = row.time.*part.value;
    for (const MemoryPart& part : kMemoryParts) memory[part.key] = row.memory.*part.value / kGiB;
    memory["total_gib"] = row.memory.total() / kGiB;
    rows.push_back({{"name", row.name}, {"time", time}, {"memory", memory}});
  }
  Json peaks = Json::array();
  for (const ScheduleRowReport& row : report.rows) peaks.push_back(row.memory.total() / kGiB);
  Json json = {{"step_time_ms", report.step_time_ms},
               {"bubble_fraction", report.bubble_fraction},
               {"throughput_samples_per_s", report.throughput_samples_per_s},
               {"tokens_per_s_per_device", report.tokens_per_s_per_device},
               {"model_flops_utilization", report.model_flops_utilization},
               {"calibration", calibration_json(report)},
               {"mean_batch_step_time_ms", report.mean_batch_step_time_ms},
               {"batches", report.batches}};
  if (report.batches > 0) {
    json["step_time_deviation_ms"] = report.spread.deviation_ms;
    json["shortest_step_ms"] = report.spread.shortest_ms;
    json["p10_step_ms"] = report.spread.p10_ms;
    json["p90_step_ms"] = report.spread.p90_ms;
    json["longest_step_ms"] = report.spread.longest_ms;
  }
  json["fits"] = report.fits();
  if (report.profile) json["profile"] = profile_json(*report.profile);
  json["memory_limit_gib"] = report.memory_limit_bytes / kGiB;
  json["peak_memory_gib"] = peaks;
  json["ranks"] = rows;
  json["warnings"] = report.warnings;
  return json;
}

}  // namespace weft
