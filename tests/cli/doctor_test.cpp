#include <gtest/gtest.h>

#include "tests/cli/run_program.h"
#include "weft/base/json.h"

namespace weft {
namespace {

TEST(Doctor, LoadsTheRuntimeHalfAndTakesATrainingStep) {
  const ProgramRun run = run_weft({"doctor", "--json"});
  ASSERT_EQ(run.exit_status, 0) << run.err;
  const Json json = Json::parse(run.out);
  EXPECT_EQ(json["libtorch"].get<std::string>().substr(0, 5), "2.11.");
  EXPECT_LT(json["training_step"]["loss_after"].get<double>(), json["training_step"]["loss_before"].get<double>());
}

}  // namespace
}  // namespace weft
