#include "weft/comm/run_ranks.h"

#include <atomic>

#include <gtest/gtest.h>

#include "tests/support/comm/environment.h"
#include "weft/comm/failure.h"

namespace weft {
namespace {

TEST(RunRanks, ThreadsAreTheDefault) {
  const Environment plain({{"SLURM_NTASKS", "4"}});
  EXPECT_EQ(detect_launch().kind, Launch::Kind::kThreads);
  std::atomic<int64_t> sum = 0;
  EXPECT_FALSE(run_ranks({.size = 3}, [&](World& world) {
                 EXPECT_EQ(world.backend_name(), "threads");
                 EXPECT_EQ(world.size(), 3);
                 sum += world.rank() + 1;
               }).has_value());
  EXPECT_EQ(sum, 6);
}

TEST(RunRanks, AWorldOfAnotherSizeThanNeededIsAnError) {
  const Environment mpirun({{"OMPI_COMM_WORLD_SIZE", "4"}});
  const auto error = run_ranks({.size = 8}, [](World&) { FAIL() << "it ran"; });
  ASSERT_TRUE(error.has_value());
  EXPECT_EQ(error->message(), "8 ranks are needed, but the launcher started 4 processes. Start it with mpirun -n 8.");
}

TEST(RunRanks, AMissingMpiLibraryIsAnErrorWithTheNextStep) {
  const Environment mpirun({{"OMPI_COMM_WORLD_SIZE", "1"}});
  const auto error = run_ranks({.mpi_library = "/nowhere/libweft_mpi.so"}, [](World&) { FAIL() << "it ran"; });
  ASSERT_TRUE(error.has_value());
  EXPECT_EQ(error->kind, ErrorKind::kJob);
  EXPECT_NE(error->message().find("cannot be loaded"), std::string::npos) << error->message();
  EXPECT_NE(error->message().find("scripts/setup"), std::string::npos) << error->message();
}

TEST(CommOptions, ComeFromTheEnvironment) {
  {
    const Environment none({});
    const CommOptions options = *comm_options_from_environment();
    EXPECT_EQ(options.timeout, std::chrono::minutes(10));
    EXPECT_FALSE(options.is_checked);
    EXPECT_TRUE(options.records.empty());
  }
  const Environment some({{"WEFT_COMM_TIMEOUT_S", "1.5"}, {"WEFT_COMM_CHECKED", "1"}, {"WEFT_RECORDS", "/tmp/x"}});
  const CommOptions options = *comm_options_from_environment();
  EXPECT_EQ(options.timeout, std::chrono::milliseconds(1500));
  EXPECT_TRUE(options.is_checked);
  EXPECT_EQ(options.records, "/tmp/x");
}

TEST(CommOptions, WrongValuesAreRefusedWithTheVariable) {
  for (const char* wrong : {"0", "-1", "ten", "5s", "nan", "inf", "1e99"}) {
    const Environment environment({{"WEFT_COMM_TIMEOUT_S", wrong}});
    const auto options = comm_options_from_environment();
    ASSERT_FALSE(options.ok()) << wrong;
    EXPECT_EQ(options.error().message().find("WEFT_COMM_TIMEOUT_S: '"), 0u) << options.error().message();
  }
  const Environment environment({{"WEFT_COMM_CHECKED", "yes"}});
  EXPECT_EQ(comm_options_from_environment().error().message(), "WEFT_COMM_CHECKED: 'yes' is neither 0 nor 1");
}

}  // namespace
}  // namespace weft
