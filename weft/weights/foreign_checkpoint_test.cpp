#include "weft/weights/foreign_checkpoint.h"

#include <fstream>
#include <unistd.h>

#include <gtest/gtest.h>

namespace weft {
namespace {

namespace fs = std::filesystem;

class ForeignCheckpoints : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::temp_directory_path() / ("weft_foreign_" + std::to_string(getpid()));
    fs::remove_all(folder_);
    fs::create_directories(folder_);
  }
  void TearDown() override { fs::remove_all(folder_); }

  void write(const std::string& name, const std::string& text) const {
    fs::create_directories((folder_ / name).parent_path());
    std::ofstream(folder_ / name) << text;
  }

  fs::path folder_;
};

// Two names are enough for a million ranks.
TEST_F(ForeignCheckpoints, OfVeryManyFoldersThatAreMissingTheFirstAreNamed) {
  fs::create_directories(folder_ / "mp_rank_00_000");
  fs::create_directories(folder_ / "mp_rank_1000_1000");
  const auto found = find_foreign_checkpoint(folder_);
  ASSERT_TRUE(found && *found);
  EXPECT_EQ((*found)->num_missing, 1001 * 1001 - 2);
  ASSERT_EQ((*found)->missing.size(), 8u);
  EXPECT_EQ((*found)->missing.front(), "mp_rank_00_001");
}

TEST_F(ForeignCheckpoints, DegreesAreInTheNamesOfRanks) {
  write("latest_checkpointed_iteration.txt", "100\n");
  for (const char* rank : {"00_000", "00_001", "00_002", "01_000", "01_001"})
    write(std::string("iter_0000100/mp_rank_") + rank + "/model_optim_rng.pt", "12345");
  const auto found = find_foreign_checkpoint(folder_);
  ASSERT_TRUE(found) << found.error().message();
  ASSERT_TRUE(*found);
  EXPECT_EQ((*found)->form, ForeignCheckpoint::Form::kTorch);
  EXPECT_EQ((*found)->iteration, "100");
  EXPECT_EQ((*found)->degrees, (std::vector<int64_t>{2, 3}));
  EXPECT_EQ(degrees_text(**found), "tp 2 x pp (or ep) 3");
  EXPECT_EQ((*found)->missing, std::vector<std::string>{"mp_rank_01_002"});
  EXPECT_EQ((*found)->num_missing, 1);
  EXPECT_EQ((*found)->num_files, 5);
  EXPECT_EQ((*found)->num_bytes, 25);
  // The folder of the iteration says the same.
  EXPECT_EQ((*find_foreign_checkpoint(folder_ / "iter_0000100"))->degrees, (*found)->degrees);
}

TEST_F(ForeignCheckpoints, FilesOfDistributedCheckpointsHaveNoDegrees) {
  write("latest_checkpointed_iteration.txt", "release");
  write("release/.metadata", "x");
  write("release/__0_0.distcp", "1234");
  write("release/__1_0.distcp", "1234");
  const auto found = find_foreign_checkpoint(folder_);
  ASSERT_TRUE(found && *found);
  EXPECT_EQ((*found)->form, ForeignCheckpoint::Form::kDistributed);
  EXPECT_EQ((*found)->iteration, "release");
  EXPECT_TRUE((*found)->degrees.empty());
  EXPECT_EQ((*found)->num_bytes, 8);
}

TEST_F(ForeignCheckpoints, OtherFoldersAreNone) {
  EXPECT_FALSE(*find_foreign_checkpoint(folder_));
  EXPECT_FALSE(*find_foreign_checkpoint(folder_ / "nowhere"));
  write("mp_rank_x/a", "1");
  write("mp_rank_00_000_000_000/a", "1");
  write("mp_rank_99999999999999999999/a", "1");
  EXPECT_FALSE(*find_foreign_checkpoint(folder_));
  write("latest_checkpointed_iteration.txt", "7");
  const auto gone = find_foreign_checkpoint(folder_);
  ASSERT_FALSE(gone);
  EXPECT_NE(gone.error().message().find("names 'iter_0000007', but there is no such folder"), std::string::npos);
  write("latest_checkpointed_iteration.txt", "../..");
  EXPECT_NE(find_foreign_checkpoint(folder_).error().message().find("a number or 'release' is needed"),
            std::string::npos);
}

}  // namespace
}  // namespace weft
