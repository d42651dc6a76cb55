#include "weft/engine/memory_check.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include <gtest/gtest.h>

#include "weft/base/check.h"
#include "weft/engine/host_memory.h"

namespace weft {
namespace {

namespace fs = std::filesystem;

/// A root folder with files of proc and sys.
class HostMemory : public testing::Test {
 protected:
  HostMemory() {
    std::string name = (fs::temp_directory_path() / "weft_host_XXXXXX").string();
    WEFT_CHECK(mkdtemp(name.data()) != nullptr, "no temporary folder");
    root_ = name;
    write("proc/meminfo", "MemTotal:       64000 kB\nMemAvailable:   32000 kB\nSwapFree:        1000 kB\n");
  }
  ~HostMemory() override { fs::remove_all(root_); }

  void write(const fs::path& file, const std::string& text) const {
    fs::create_directories((root_ / file).parent_path());
    std::ofstream(root_ / file) << text;
  }
  int64_t available() const { return available_host_memory(root_).value(); }

  fs::path root_;
};

constexpr int64_t kKibibyte = 1024;

TEST_F(HostMemory, IsWhatTheKernelCallsAvailableAndSwap) {
  EXPECT_EQ(available(), 33000 * kKibibyte);
  write("sys/fs/cgroup/memory.max", "max\n");
  EXPECT_EQ(available(), 33000 * kKibibyte);
}

TEST_F(HostMemory, EndsAtTheContainersLimitLessWhatItUsesAndCannotDrop) {
  write("sys/fs/cgroup/memory.max", "20000000\n");
  EXPECT_EQ(available(), 20'000'000);
  write("sys/fs/cgroup/memory.current", "7000000\n");
  EXPECT_EQ(available(), 13'000'000);
  write("sys/fs/cgroup/memory.stat", "anon 4000000\ninactive_file 2000000\n");
  EXPECT_EQ(available(), 15'000'000);
}

TEST_F(HostMemory, EndsAtTheTightestOfNestedGroups) {
  write("proc/self/cgroup", "0::/batch/job7\n");
  write("sys/fs/cgroup/batch/memory.max", "9000000\n");
  write("sys/fs/cgroup/batch/job7/memory.max", "max\n");
  EXPECT_EQ(available(), 9'000'000);
  write("sys/fs/cgroup/batch/job7/memory.max", "5000000\n");
  EXPECT_EQ(available(), 5'000'000);
}

TEST_F(HostMemory, KnowsTheFirstVersionOfControlGroups) {
  write("proc/self/cgroup", "5:cpu:/x\n4:memory:/job\n");
  write("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
  EXPECT_EQ(available(), 33000 * kKibibyte);
  write("sys/fs/cgroup/memory/job/memory.limit_in_bytes", "6000000\n");
  write("sys/fs/cgroup/memory/job/memory.usage_in_bytes", "1000000\n");
  EXPECT_EQ(available(), 5'000'000);
}

TEST_F(HostMemory, IsUnknownWhereNothingTells) {
  fs::remove(root_ / "proc/meminfo");
  EXPECT_FALSE(available_host_memory(root_).has_value());
}

TEST(MemoryCheck, MoreThanThisMachineHasIsAnErrorWithBothFigures) {
  if (!available_host_memory()) GTEST_SKIP() << "this system does not tell";
  EXPECT_FALSE(check_memory({.bytes = 1024, .what = "", .advice = ""}, at::kCPU));
  const auto error = check_memory({.bytes = 0x1p60, .what = "it takes 1 EiB", .advice = "Take less."}, at::kCPU);
  ASSERT_TRUE(error.has_value());
  EXPECT_EQ(error->problem.rfind("it takes 1 EiB, but this machine has ", 0), 0u) << error->problem;
  EXPECT_EQ(error->advice, "Take less.");
}

TEST(MemoryCheck, RanksThatShareAMachineAreSummed) {
  const auto left = available_host_memory();
  if (!left) GTEST_SKIP() << "this system does not tell";
  // Each alone would fit, two at once do not.
  const double share = 0.3 * static_cast<double>(*left);
  const std::vector<RankNeed> needs(4, RankNeed{.states_bytes = share, .step_bytes = share});
  EXPECT_FALSE(check_rank_memory(needs, {.first = 3, .count = 1}, at::kCPU));
  const auto error = check_rank_memory(needs, {.first = 2, .count = 2}, at::kCPU);
  ASSERT_TRUE(error.has_value());
  EXPECT_EQ(error->field, "memory");
  EXPECT_EQ(error->problem.rfind("2 ranks on this machine need ", 0), 0u) << error->problem;
  EXPECT_FALSE(check_rank_memory({}, {.first = 0, .count = 4}, at::kCPU));
}

}  // namespace
}  // namespace weft
