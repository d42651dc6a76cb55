#include "weft/engine/runtime_check.h"

#include <gtest/gtest.h>

namespace weft {
namespace {

TEST(RuntimeCheck, OneStepLowersTheLossAndAutogradAgreesWithTheClosedForm) {
  const Result<RuntimeReport> report = check_runtime();
  ASSERT_TRUE(report.ok()) << report.error().message();
  EXPECT_EQ(report->libtorch_version.substr(0, 5), "2.11.");
  EXPECT_LT(report->gradient_error, 1e-12);
  EXPECT_GT(report->loss_before, 0.1);
  EXPECT_LT(report->loss_after, 0.9 * report->loss_before);
}

}  // namespace
}  // namespace weft
