// Writes scenarios/plans, each plan with a picture of one pipeline's step as 'weft simulate' times it: make_plans
// SCENARIOS. Run it after a change that alters the documents, and read the difference.
#include <cstdio>

#include "tests/golden/plan_gallery.h"
#include "weft/base/file.h"
#include "weft/plan/plan_json.h"
#include "weft/simulate/picture_title.h"
#include "weft/simulate/plan_simulator.h"

namespace {

std::string picture_of(const weft::NamedPlan& named) {
  weft::Timeline timeline;
  const weft::Result<weft::PlanReport> report = weft::simulate_plan(named.plan, {.batches = 0, .timeline = &timeline});
  return weft::to_svg(timeline, weft::picture_title(named.plan, *report));
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
