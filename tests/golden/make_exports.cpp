// Writes tests/golden/exports: make_exports SOURCE. Run it after a change that alters what is exported, and read the
// difference.
#include <cstdio>

#include "tests/golden/export_gallery.h"
#include "weft/base/file.h"

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  const std::filesystem::path source = argv[1];
  for (const weft::NamedPlan& named : weft::plan_gallery(weft::Scenarios(source / "scenarios"))) {
    const std::filesystem::path path = source / "tests/golden/exports" / (named.name + ".txt");
    if (const auto error = weft::write_file(path, weft::exports_of(named))) {
      std::fprintf(stderr, "%s\n", error->message().c_str());
      return 1;
    }
  }
}
