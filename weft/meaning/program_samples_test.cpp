#include <gtest/gtest.h>

#include "tests/support/source_tree.h"
#include "weft/meaning/check.h"
#include "weft/plan/plan_json.h"

namespace weft::program_samples_test {
namespace {

/// A program with 2^34 features: 2^19 samples are the most whose tensor has 2^53 elements.
std::string findings_with(int64_t mbs) {
  Json json = read_document(source_tree() / "tests/fuzz/corpus/plan/program-too-many-samples.json")->root;
  json["schedule"]["mbs"] = json["workload"]["spec"]["global_batch_samples"] = mbs;
  const Result<Plan> plan = read_plan({.source = "plan.json", .root = json});
  if (!plan) return plan.error().message();
  std::string text;
  for (const Violation& violation : check_plan(*plan)) text += violation.field + ": " + violation.message + "\n";
  return text;
}

TEST(ProgramSamples, AMicrobatchHasNoMoreThanATensorHasRoomFor) {
  EXPECT_EQ(findings_with(524'288), "");
  const std::string text = findings_with(524'289);
  EXPECT_NE(
      text.find("schedule.mbs: is 524289, but with more than 524288 samples at once a tensor of the program would "
                "have more than 9,007,199,254,740,992 elements; make mbs 524288 or less"),
      std::string::npos)
      << text;
}

}  // namespace
}  // namespace weft::program_samples_test
