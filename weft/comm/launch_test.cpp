#include "weft/comm/launch.h"

#include <gtest/gtest.h>

#include "tests/support/comm/environment.h"
#include "tests/support/source_tree.h"
#include "weft/comm/cuda/cuda_driver.h"
#include "weft/comm/run_ranks.h"

namespace weft {
namespace {

std::string problem_of(std::initializer_list<std::pair<const char*, const char*>> variables) {
  const Environment environment(variables);
  const auto rank = read_environment_rank();
  return rank ? "nothing is wrong" : rank.error().source + ": " + rank.error().problem;
}

TEST(Launch, ThreadsAreTheDefault) {
  const Environment plain({{"SLURM_NTASKS", "4"}, {"RANK", "3"}});
  EXPECT_EQ(detect_launch().kind, Launch::Kind::kThreads);
}

TEST(Launch, AProcessThatMpirunOrSlurmStartedIsOneRank) {
  {
    const Environment mpirun({{"OMPI_COMM_WORLD_SIZE", "8"}, {"OMPI_COMM_WORLD_RANK", "5"}});
    EXPECT_EQ(detect_launch().kind, Launch::Kind::kMpi);
    EXPECT_EQ(detect_launch().size, 8);
    EXPECT_EQ(detect_launch().rank, 5);
  }
  const Environment slurm({{"PMIX_RANK", "2"}, {"SLURM_NTASKS", "16"}});
  EXPECT_EQ(detect_launch().kind, Launch::Kind::kMpi);
  EXPECT_EQ(detect_launch().size, 16);
  EXPECT_EQ(detect_launch().rank, 2);
}

TEST(Launch, MpirunComesBeforeTorchrunsVariables) {
  const Environment both({{"OMPI_COMM_WORLD_SIZE", "8"}, {"WORLD_SIZE", "4"}, {"RANK", "1"}});
  EXPECT_EQ(detect_launch().kind, Launch::Kind::kMpi);
  EXPECT_EQ(detect_launch().size, 8);
}

TEST(Launch, TorchrunsVariablesSayWhichRankThisIs) {
  const Environment torchrun(
      {{"WORLD_SIZE", "16"}, {"RANK", "9"}, {"LOCAL_RANK", "1"}, {"MASTER_ADDR", "node0"}, {"MASTER_PORT", "29500"}});
  EXPECT_EQ(detect_launch().kind, Launch::Kind::kEnvironment);
  EXPECT_EQ(detect_launch().size, 16);
  EXPECT_EQ(detect_launch().rank, 9);
  const EnvironmentRank expected{.rank = 9, .size = 16, .local_rank = 1, .master_host = "node0", .master_port = 29500};
  EXPECT_EQ(*read_environment_rank(), expected);
}

TEST(Launch, WhereTorchrunsAgentListensThePortAfterIsTaken) {
  const Environment torchrun({{"WORLD_SIZE", "2"},
                              {"RANK", "0"},
                              {"MASTER_ADDR", "node0"},
                              {"MASTER_PORT", "29500"},
                              {"TORCHELASTIC_USE_AGENT_STORE", "True"}});
  EXPECT_EQ(read_environment_rank()->master_port, 29501);
}

TEST(Launch, OneRankNeedsNoMeetingPoint) {
  const Environment one({{"WORLD_SIZE", "1"}, {"RANK", "0"}});
  ASSERT_TRUE(read_environment_rank().ok());
  EXPECT_EQ(read_environment_rank()->local_rank, 0);
}

TEST(Launch, WrongVariablesAreNamed) {
  EXPECT_EQ(problem_of({{"WORLD_SIZE", "4"}, {"RANK", "4"}}), "RANK: '4' is no whole number from 0 to 3");
  EXPECT_EQ(problem_of({{"WORLD_SIZE", "4"}}),
            "RANK: is not set, expected a number from 0 to 3, since WORLD_SIZE is set");
  EXPECT_EQ(problem_of({{"WORLD_SIZE", "many"}, {"RANK", "0"}}),
            "WORLD_SIZE: 'many' is no whole number from 1 to 1048576");
  EXPECT_EQ(problem_of({{"WORLD_SIZE", "0"}, {"RANK", "0"}}), "WORLD_SIZE: '0' is no whole number from 1 to 1048576");
  EXPECT_EQ(problem_of({{"WORLD_SIZE", "2"}, {"RANK", "0"}, {"MASTER_PORT", "1"}}),
            "MASTER_ADDR: is not set, expected the name or the address of rank 0's host, since WORLD_SIZE is set");
  EXPECT_EQ(problem_of({{"WORLD_SIZE", "2"}, {"RANK", "0"}, {"MASTER_ADDR", "a"}}),
            "MASTER_PORT: is not set, expected a number from 1 to 65535, since WORLD_SIZE is set");
  EXPECT_EQ(problem_of({{"WORLD_SIZE", "2"}, {"RANK", "0"}, {"MASTER_ADDR", "a"}, {"MASTER_PORT", "70000"}}),
            "MASTER_PORT: '70000' is no whole number from 1 to 65535");
  EXPECT_EQ(problem_of({{"WORLD_SIZE", "2"}, {"RANK", "0"}, {"LOCAL_RANK", "-1"}}),
            "LOCAL_RANK: '-1' is no whole number from 0 to 1024");
}

TEST(Launch, MistakesInTheEnvironmentAreToldBeforeAnythingIsLoaded) {
  const Environment wrong({{"WORLD_SIZE", "4"}, {"RANK", "7"}});
  const auto error = run_ranks({.nccl_library = "/nowhere/libweft_nccl.so"}, [](World&) { FAIL() << "it ran"; });
  ASSERT_TRUE(error.has_value());
  EXPECT_EQ(error->source, "RANK") << error->message();
}

TEST(Launch, AWorldOfAnotherSizeThanNeededIsAnError) {
  const Environment torchrun(
      {{"WORLD_SIZE", "4"}, {"RANK", "0"}, {"MASTER_ADDR", "localhost"}, {"MASTER_PORT", "29500"}});
  const auto error = run_ranks({.size = 8}, [](World&) { FAIL() << "it ran"; });
  ASSERT_TRUE(error.has_value());
  EXPECT_EQ(error->message(),
            "8 ranks are needed, but the launcher started 4 processes. Start 8 processes: WORLD_SIZE says 4. Without a "
            "launcher, unset WORLD_SIZE: ranks are threads then.");
}

TEST(Launch, TorchrunsRanksNeedAGpu) {
  if (cuda_driver()) GTEST_SKIP() << "there is a GPU";
  const Environment torchrun({{"WORLD_SIZE", "1"}, {"RANK", "0"}});
  const auto error = run_ranks({.nccl_library = build_tree() / "libweft_nccl.so"}, [](World&) { FAIL() << "it ran"; });
  ASSERT_TRUE(error.has_value());
  EXPECT_NE(error->message().find("rank 0 of WORLD_SIZE 1 needs a GPU: "), std::string::npos) << error->message();
  EXPECT_NE(error->message().find("libcuda.so.1"), std::string::npos) << error->message();
  EXPECT_NE(error->message().find("start it with mpirun -n 1, or unset WORLD_SIZE"), std::string::npos)
      << error->message();
  EXPECT_EQ(error->message().find("or without a GPU"), std::string::npos) << error->message();
}

TEST(Launch, ARankThatIsNotInTheWorldIsToldWhateverIsNeeded) {
  const Environment wrong({{"WORLD_SIZE", "4"}, {"RANK", "4"}});
  EXPECT_TRUE(detect_launch().is_speaker());
  const auto error = run_ranks({.size = 8}, [](World&) { FAIL() << "it ran"; });
  ASSERT_TRUE(error.has_value());
  EXPECT_EQ(error->source, "RANK") << error->message();
  EXPECT_EQ(error->problem, "'4' is no whole number from 0 to 3");
}

TEST(Launch, OneProcessSpeaksForAll) {
  const Environment second({{"WORLD_SIZE", "4"}, {"RANK", "1"}});
  EXPECT_FALSE(detect_launch().is_speaker());
  const Environment first({{"WORLD_SIZE", "4"}, {"RANK", "0"}});
  EXPECT_TRUE(detect_launch().is_speaker());
}

TEST(Launch, RanksOfAHostAreNeighbours) {
  EXPECT_EQ(ranks_of_host({}, 8), (HostRanks{.first = 0, .count = 8}));
  const Environment sixth({{"OMPI_COMM_WORLD_SIZE", "8"},
                           {"OMPI_COMM_WORLD_RANK", "5"},
                           {"OMPI_COMM_WORLD_LOCAL_SIZE", "4"},
                           {"OMPI_COMM_WORLD_LOCAL_RANK", "1"}});
  EXPECT_EQ(ranks_of_host(detect_launch(), 8), (HostRanks{.first = 4, .count = 4}));
  const Environment silent({{"OMPI_COMM_WORLD_SIZE", "8"}, {"OMPI_COMM_WORLD_RANK", "5"}});
  EXPECT_EQ(ranks_of_host(detect_launch(), 8), (HostRanks{.first = 0, .count = 8}));
}

}  // namespace
}  // namespace weft
