#include <chrono>
#include <filesystem>

#include <gtest/gtest.h>

#include "tests/golden/plan_gallery.h"
#include "tests/support/source_tree.h"
#include "weft/base/file.h"
#include "weft/meaning/check.h"
#include "weft/plan/plan_json.h"

namespace weft {
namespace {

const std::filesystem::path kScenarios = source_tree() / "scenarios";

std::string listed(const std::vector<Violation>& violations) {
  std::string text;
  for (const Violation& violation : violations) text += violation.field + ": " + violation.message + "\n";
  return text;
}

TEST(ShippedPlans, AreLegalAndRoundTripByteForByte) {
  size_t num_plans = 0;
  for (const auto& entry : std::filesystem::directory_iterator(kScenarios / "plans")) {
    if (entry.path().extension() != ".json") continue;
    const std::string text = *read_file(entry.path(), 64u << 20);
    const Result<Plan> plan = read_plan_file(entry.path());
    ASSERT_TRUE(plan.ok()) << plan.error().message();
    EXPECT_EQ(plan_to_text(*plan), text) << entry.path();
    EXPECT_EQ(listed(check_plan(*plan)), "") << entry.path();
    ++num_plans;
  }
  EXPECT_EQ(num_plans, plan_gallery(Scenarios(kScenarios)).size());
}

TEST(ShippedPlans, AreWhatTheGalleryBuilds) {
  for (const NamedPlan& named : plan_gallery(Scenarios(kScenarios))) {
    EXPECT_EQ(plan_to_text(named.plan), *read_file(kScenarios / "plans" / (named.name + ".json"), 64u << 20))
        << "run make_plans: " << named.name;
  }
}

}  // namespace
}  // namespace weft
