#include "tests/golden/export_gallery.h"

#include "weft/exchange/export.h"

namespace weft {

std::string exports_of(const NamedPlan& named) {
  Plan plan = named.plan;
  plan.predicted.step_time_ms = 1000;
  plan.predicted.throughput_samples_per_s = static_cast<double>(plan.workload.global_batch_samples);
  std::string text;
  for (const std::string& name : target_names()) {
    const auto files = export_plan(plan, *parse_target(name));
    if (!files) {
      text += "== " + name + ": refused\n" + files.error().message() + "\n" + files.error().details;
      continue;
    }
    for (const ExportedFile& file : *files) text.append("== ").append(name + ": " + file.name + "\n").append(file.text);
  }
  return text;
}

}  // namespace weft
