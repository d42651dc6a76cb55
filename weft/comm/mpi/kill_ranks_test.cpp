// MPI processes that throw, exit, return or are killed in the middle of anything: all end, and the user reads one
// message.
#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <functional>
#include <random>
#include <sstream>
#include <stdexcept>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

#include <gtest/gtest.h>

#include "tests/support/source_tree.h"

namespace weft {
namespace {

using Clock = std::chrono::steady_clock;

/// Every other rank ends within this, and a start under a sanitizer on a busy machine takes as long again.
constexpr double kSecondsToEnd = 5, kSecondsToStart = 20;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

std::string contents(const std::filesystem::path& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

/// A process that has ended and that nobody has asked about yet does not run.
bool is_running(pid_t pid) {
  const std::string status = contents(std::filesystem::path("/proc") / std::to_string(pid) / "stat");
  const size_t name_end = status.rfind(')');
  return name_end != std::string::npos && status[name_end + 2] != 'Z' && status[name_end + 2] != 'X';
}

/// One run of the rank program under mpirun, in a process group of its own.
class RankRun {
 public:
  RankRun(const std::vector<std::string>& mpi_arguments, const std::vector<std::string>& arguments) {
    std::string name = (std::filesystem::temp_directory_path() / "weft_kill_XXXXXX").string();
    if (mkdtemp(name.data()) == nullptr) throw std::runtime_error("no temporary folder");
    folder_ = name;
    std::filesystem::create_directory(folder_ / "pids");
    std::vector<std::string> words = {source_tree() / "scripts/mpirun"};
    words.insert(words.end(), mpi_arguments.begin(), mpi_arguments.end());
    words.emplace_back(build_tree() / "weft_comm_rank_program");
    words.insert(words.end(), arguments.begin(), arguments.end());
    std::vector<char*> argv;
    for (std::string& word : words) argv.push_back(word.data());
    argv.push_back(nullptr);
    mpirun_ = fork();
    if (mpirun_ == 0) {
      setpgid(0, 0);
      setenv("WEFT_TEST_PIDS", (folder_ / "pids").c_str(), 1);
      setenv("WEFT_RECORDS", (folder_ / "records").c_str(), 1);
      setenv("ASAN_OPTIONS", "detect_leaks=0", 1);
      const int file = open((folder_ / "err").c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
      dup2(file, STDOUT_FILENO);
      dup2(file, STDERR_FILENO);
      execv(argv[0], argv.data());
      _exit(127);
    }
  }
  ~RankRun() {
    if (!is_over_) {
      kill(-mpirun_, SIGKILL);
      waitpid(mpirun_, nullptr, 0);
      for (const pid_t pid : pids()) kill(pid, SIGKILL);
    }
    std::error_code ignored;
    std::filesystem::remove_all(folder_, ignored);
  }
  RankRun(const RankRun&) = delete;
  RankRun& operator=(const RankRun&) = delete;

  pid_t mpirun() const { return mpirun_; }
  std::filesystem::path records() const { return folder_ / "records"; }

  /// Of the ranks that have begun to work, by rank.
  std::vector<pid_t> pids() const {
    std::vector<pid_t> found;
    for (int64_t rank = 0;; ++rank) {
      std::ifstream file(folder_ / "pids" / std::to_string(rank));
      pid_t pid = 0;
      if (!(file >> pid)) return found;
      found.push_back(pid);
    }
  }
  bool wait_for_ranks(size_t size) const {
    const auto start = Clock::now();
    while (pids().size() < size && seconds_since(start) < kSecondsToStart) {
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
    return pids().size() == size;
  }

  /// Whether mpirun ends within the time.
  bool ends_within(double seconds) {
    const auto start = Clock::now();
    while (!is_over_ && seconds_since(start) < seconds) {
      is_over_ = waitpid(mpirun_, &status_, WNOHANG) == mpirun_;
      if (!is_over_) std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
    return is_over_;
  }
  int exit_status() const { return WIFEXITED(status_) ? WEXITSTATUS(status_) : 128 + WTERMSIG(status_); }
  /// Whether no rank is left, or just about to go.
  bool all_ranks_are_gone() const {
    const auto start = Clock::now();
    for (const pid_t pid : pids()) {
      while (is_running(pid)) {
        if (seconds_since(start) > 1) return false;
        std::this_thread::sleep_for(std::chrono::milliseconds(2));
      }
    }
    return true;
  }
  std::string output() const { return contents(folder_ / "err"); }
  int num_messages() const {
    std::istringstream lines(output());
    int num = 0;
    for (std::string line; std::getline(lines, line);) num += line.rfind("weft: ", 0) == 0 ? 1 : 0;
    return num;
  }
  bool says(const std::string& part) const { return output().find(part) != std::string::npos; }

 private:
  std::filesystem::path folder_;
  pid_t mpirun_ = -1;
  bool is_over_ = false;
  int status_ = 0;
};

/// A rank ends in a way, at a step; all end, and one message has these parts.
void expect_end(const std::string& mode, int rank, int step, int seed, const std::vector<std::string>& parts,
                const std::vector<std::string>& mpi_arguments = {"-n", "4"}) {
  RankRun run(mpi_arguments, {mode, std::to_string(rank), std::to_string(step), std::to_string(seed)});
  SCOPED_TRACE(mode + " rank " + std::to_string(rank) + " step " + std::to_string(step));
  ASSERT_TRUE(run.ends_within(kSecondsToStart + kSecondsToEnd)) << run.output();
  EXPECT_TRUE(run.all_ranks_are_gone());
  // A launcher that is told to go on without ranks calls that a success.
  if (mpi_arguments[0] != "--enable-recovery") {
    EXPECT_NE(run.exit_status(), 0);
  }
  EXPECT_EQ(run.num_messages(), 1) << run.output();
  for (const std::string& part : parts) EXPECT_TRUE(run.says(part)) << part << " in " << run.output();
}

TEST(KillRanks, AThrowingRankIsNamedWithItsReasonAndWhoWaited) {
  expect_end("throw", 2, 5, 1, {"rank 2 failed: out of luck", " waited in ", "of group '"});
  expect_end("throw", 0, 0, 2, {"rank 0 failed: out of luck"});
}

TEST(KillRanks, ARankThatExitsIsNamedWithWhoWaited) {
  expect_end("exit", 1, 7, 3, {"rank 1 ended without a word", "waited for it in", "of group '"});
  expect_end("exit0", 3, 4, 4, {"rank 3 ended without a word", "waited for it in", "of group '"});
}

TEST(KillRanks, ARankThatReturnsEarlyIsNamed) {
  for (int seed = 1; seed <= 3; ++seed) expect_end("return", 2, 6, seed, {"rank 2 returned early"});
}

TEST(KillRanks, ARankThatHasEndedIsNotMissedByMessagesOfOthers) {
  RankRun run({"-n", "4"}, {"late", "0", "0"});
  ASSERT_TRUE(run.ends_within(kSecondsToStart));
  EXPECT_EQ(run.exit_status(), 0) << run.output();
  EXPECT_EQ(run.num_messages(), 0) << run.output();
}

TEST(KillRanks, AKilledRankIsNamedAlsoWhenItIsTheFirst) {
  expect_end("kill", 0, 6, 5, {"rank 0 ended without a word", "waited for it in", "of group '"});
  expect_end("kill", 1, 0, 6, {"rank 1 ended without a word", "waited for it in", "of group '"}, {"-n", "2"});
}

TEST(KillRanks, MistakesAndDisagreementsEndTheRunWithOneMessage) {
  expect_end("misuse", 1, 3, 7, {"rank 1, send of group 'world'", "has no memory"});
  expect_end("disagree", 3, 3, 8, {"disagree on operation", "rank 3 for broadcast of 1 fp32"});
}

TEST(KillRanks, RanksThatComputeEndTooAndOneOfThemSpeaks) {
  expect_end("compute", 1, 3, 9, {"rank 1 ended without a word"});
}

TEST(KillRanks, RanksEndThemselvesWhereTheLauncherDoesNot) {
  expect_end("kill", 1, 3, 10, {"rank 1 ended without a word", "waited for it in"}, {"--enable-recovery", "-n", "4"});
  expect_end("compute", 2, 3, 11, {"rank 2 ended without a word"}, {"--enable-recovery", "-n", "3"});
}

TEST(KillRanks, ARankThatStaysAwayIsNamedAfterTheTimeout) {
  setenv("WEFT_COMM_TIMEOUT_S", "0.5", 1);
  expect_end("stay", 2, 3, 12, {"rank 2 did not come within 0.5 s", "waited for it in", "of group '"});
  unsetenv("WEFT_COMM_TIMEOUT_S");
}

TEST(KillRanks, AWrongNumberOfProcessesIsToldOnce) {
  RankRun run({"-n", "2"}, {"needs", "3", "0"});
  ASSERT_TRUE(run.ends_within(kSecondsToStart));
  EXPECT_EQ(run.exit_status(), 2);
  EXPECT_EQ(run.num_messages(), 1) << run.output();
  EXPECT_TRUE(run.says("3 ranks are needed, but the launcher started 2 processes")) << run.output();
}

TEST(KillRanks, KillsFromOutsideAtRandomTimesNeverHangTheOthers) {
  std::mt19937 random(20'261'115);
  for (int round = 0; round < 8; ++round) {
    const size_t size = round % 2 == 0 ? 4 : 3;
    const size_t dead = random() % size;
    RankRun run({"-n", std::to_string(size)}, {"none", "0", "-1", std::to_string(round)});
    ASSERT_TRUE(run.wait_for_ranks(size)) << run.output();
    std::this_thread::sleep_for(std::chrono::microseconds(random() % 150'000));
    kill(run.pids()[dead], SIGKILL);
    const auto killed = Clock::now();
    ASSERT_TRUE(run.ends_within(kSecondsToEnd)) << run.output();
    EXPECT_LT(seconds_since(killed), kSecondsToEnd);
    EXPECT_TRUE(run.all_ranks_are_gone());
    EXPECT_EQ(run.num_messages(), 1) << run.output();
    EXPECT_TRUE(run.says("rank " + std::to_string(dead) + " ended without a word")) << run.output();
    EXPECT_TRUE(run.says("waited for it in")) << run.output();
    // What everyone did last is there to be read.
    for (size_t rank = 0; rank < size; ++rank) {
      const std::string record = contents(run.records() / ("rank-" + std::to_string(rank)));
      EXPECT_NE(record.find("rank " + std::to_string(rank) + ", process "), std::string::npos) << record;
      EXPECT_NE(record.find("of group '"), std::string::npos) << record;
    }
  }
}

TEST(KillRanks, EveryRunInTheSameFolderOfRecordsIsTold) {
  const auto records = std::filesystem::temp_directory_path() / ("weft_kill_records_" + std::to_string(getpid()));
  for (int round = 0; round < 2; ++round) {
    expect_end("throw", 1, 2, round, {"rank 1 failed: out of luck", "All records: " + records.string()},
               {"-n", "2", "-x", "WEFT_RECORDS=" + records.string()});
  }
  std::filesystem::remove_all(records);
  // Where no records can be kept, that is what is told.
  expect_end("throw", 1, 2, 1, {"WEFT_RECORDS"}, {"-n", "1", "-x", "WEFT_RECORDS=/proc/nowhere"});
}

TEST(KillRanks, CtrlCEndsAllRanks) {
  RankRun run({"-n", "4"}, {"none", "0", "-1"});
  ASSERT_TRUE(run.wait_for_ranks(4)) << run.output();
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  // What a terminal does: to everyone in the foreground.
  kill(-run.mpirun(), SIGINT);
  ASSERT_TRUE(run.ends_within(kSecondsToEnd)) << run.output();
  EXPECT_TRUE(run.all_ranks_are_gone());
  EXPECT_LE(run.num_messages(), 1) << run.output();
}

TEST(KillRanks, RanksEndWhenTheLauncherIsKilled) {
  RankRun run({"-n", "3"}, {"none", "0", "-1"});
  ASSERT_TRUE(run.wait_for_ranks(3)) << run.output();
  kill(run.mpirun(), SIGKILL);
  ASSERT_TRUE(run.ends_within(kSecondsToEnd));
  const auto start = Clock::now();
  while (!run.all_ranks_are_gone() && seconds_since(start) < kSecondsToEnd) {
  }
  EXPECT_TRUE(run.all_ranks_are_gone());
}

}  // namespace
}  // namespace weft
