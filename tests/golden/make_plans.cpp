// Writes scenarios/plans, each plan with a picture of one pipeline (F takes 1 ms, B 2, EF 0.5, EB 1): make_plans
// SCENARIOS. Run it after a change that alters the documents, and read the difference.
#include <cstdio>

#include "tests/golden/plan_gallery.h"
#include "weft/base/file.h"
#include "weft/plan/plan_json.h"
#include "weft/plan/plan_schedule.h"
#include "weft/schedule/lowering.h"
#include "weft/simulate/run_schedule.h"

namespace {

std::string picture_of(const weft::NamedPlan& named) {
  const weft::Schedule lowered = *weft::lower_schedule(*weft::schedule_of(named.plan));
  weft::PipelineCosts costs;
  for (size_t e = 0; e < lowered.encoders.size(); ++e) {
    costs.encoders.push_back({.forward_ms = weft::CostTable(0.5), .backward_ms = weft::CostTable(1.0)});
  }
  weft::Timeline timeline;
  weft::run_schedule(lowered, costs, &timeline);
  return weft::to_svg(timeline, named.name);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  const std::filesystem::path scenarios = argv[1];
  for (const weft::NamedPlan& named : weft::plan_gallery(weft::Scenarios(scenarios))) {
    const std::filesystem::path base = scenarios / "plans" / named.name;
    for (const auto& [extension, text] :
         {std::pair{".json", weft::plan_to_text(named.plan)}, {".svg", picture_of(named)}}) {
      if (const auto error = weft::write_file(base.string() + extension, text)) {
        std::fprintf(stderr, "%s\n", error->message().c_str());
        return 1;
      }
    }
  }
}
