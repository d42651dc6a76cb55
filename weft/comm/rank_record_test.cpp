#include "weft/comm/rank_record.h"

#include <csignal>
#include <sys/wait.h>
#include <unistd.h>

#include <gtest/gtest.h>

namespace weft {
namespace {

class RankRecordTest : public testing::Test {
 protected:
  RankRecordTest() : folder_(std::filesystem::temp_directory_path() / ("weft_record_" + std::to_string(getpid()))) {}
  ~RankRecordTest() override { std::filesystem::remove_all(folder_); }

  std::filesystem::path folder_;
};

OperationNote all_reduce(int64_t number, const std::string& group) {
  return {{.kind = OperationKind::kAllReduce, .reduction = Reduction::kAvg, .count = 12}, number, group};
}

TEST_F(RankRecordTest, TheLineOfAKilledProcessIsThere) {
  const pid_t child = fork();
  if (child == 0) {
    RankRecord record(3);
    if (record.keep_in(folder_)) _exit(1);
    record.note(RankPhase::kStarted, all_reduce(17, "tp"));
    record.note(RankPhase::kWaiting, all_reduce(17, "tp"));
    raise(SIGKILL);
  }
  waitpid(child, nullptr, 0);
  const std::string line = read_record(folder_, 3).value_or("none");
  EXPECT_EQ(line.find("rank 3, process " + std::to_string(child) + ", "), 0u) << line;
  const std::string end = " UTC: awaiting all_reduce of 12 fp32 (avg), operation 17 of group 'tp'";
  EXPECT_EQ(line.rfind(end), line.size() - end.size()) << line;
}

TEST_F(RankRecordTest, AShorterLineLeavesNothingOfALongerOne) {
  RankRecord record(0);
  ASSERT_FALSE(record.keep_in(folder_).has_value());
  record.note(RankPhase::kStarted, all_reduce(1'000'000, "a group with a long name"));
  record.note(RankPhase::kStarted, {{}, 2, "b"});
  record.note(RankPhase::kFinished, {{}, 2, "b"});
  const std::string line = read_record(folder_, 0).value_or("none");
  EXPECT_EQ(line.substr(line.find("UTC: ")), "UTC: finished barrier, operation 2 of group 'b'");
  EXPECT_EQ(record.text(), "finished barrier, operation 2 of group 'b'");
}

TEST_F(RankRecordTest, VeryLongNamesAreShortened) {
  RankRecord record(0);
  ASSERT_FALSE(record.keep_in(folder_).has_value());
  record.note(RankPhase::kWaiting, all_reduce(1, std::string(1000, 'x')));
  EXPECT_NE(read_record(folder_, 0).value_or("").find("of group '" + std::string(63, 'x') + "'"), std::string::npos);
  record.remove_file();
  EXPECT_FALSE(read_record(folder_, 0).has_value());
}

}  // namespace
}  // namespace weft
