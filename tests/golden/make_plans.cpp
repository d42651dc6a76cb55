// Writes scenarios/plans: make_plans SCENARIOS. Run it after a change that alters the documents, and read the difference.
#include <cstdio>

#include "tests/golden/plan_gallery.h"
#include "weft/base/file.h"
#include "weft/plan/plan_json.h"

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  const std::filesystem::path scenarios = argv[1];
  for (const weft::NamedPlan& named : weft::plan_gallery(weft::Scenarios(scenarios))) {
    if (const auto error = weft::write_file(scenarios / "plans" / (named.name + ".json"), weft::plan_to_text(named.plan))) {
      std::fprintf(stderr, "%s\n", error->message().c_str());
      return 1;
    }
  }
}
