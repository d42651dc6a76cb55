#include <filesystem>

#include <gtest/gtest.h>

#include "tests/golden/export_gallery.h"
#include "tests/support/source_tree.h"
#include "weft/base/file.h"

namespace weft {
namespace {

const std::filesystem::path kSource = source_tree();

TEST(ShippedPlans, AreExportedAsBefore) {
  for (const NamedPlan& named : plan_gallery(Scenarios(kSource / "scenarios"))) {
    const std::filesystem::path path = kSource / "tests/golden/exports" / (named.name + ".txt");
    const Result<std::string> golden = read_file(path, 1u << 20);
    ASSERT_TRUE(golden.ok()) << golden.error().message();
    EXPECT_EQ(exports_of(named), *golden) << "run make_exports: " << named.name;
  }
}

}  // namespace
}  // namespace weft
