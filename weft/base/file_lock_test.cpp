#include "weft/base/file_lock.h"

#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <fstream>
#include <sys/stat.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

namespace weft {
namespace {

class FileLocks : public testing::Test {
 protected:
  FileLocks() {
    std::string name = (std::filesystem::temp_directory_path() / "weft_lock_XXXXXX").string();
    if (mkdtemp(name.data()) == nullptr) std::abort();
    folder_ = name;
  }
  ~FileLocks() override { std::filesystem::remove_all(folder_); }
  std::filesystem::path file() const { return folder_ / "a.lock"; }

  std::filesystem::path folder_;
};

TEST_F(FileLocks, WhatIsNoRegularFileIsLeftAsItIs) {
  const std::filesystem::path victim = folder_ / "victim";
  std::ofstream(victim) << "precious";
  std::filesystem::create_symlink(victim, file());
  const FileLock lock = FileLock::take(file());
  EXPECT_EQ(lock.state(), FileLock::State::kFailed);
  EXPECT_EQ(lock.text(), "a.lock is no regular file");
  EXPECT_EQ(read_lock_text(file()), "");
  EXPECT_EQ(std::filesystem::file_size(victim), 8u);
  std::filesystem::remove(file());
  std::filesystem::create_symlink(folder_ / "nowhere", file());
  EXPECT_EQ(FileLock::take(file()).state(), FileLock::State::kFailed);
  EXPECT_FALSE(std::filesystem::exists(folder_ / "nowhere"));
  std::filesystem::remove(file());
  ASSERT_EQ(mkfifo(file().c_str(), 0600), 0);
  EXPECT_EQ(FileLock::take(file()).state(), FileLock::State::kFailed);
}

TEST_F(FileLocks, TheSecondLearnsWhoHasIt) {
  FileLock first = FileLock::take(file());
  ASSERT_EQ(first.state(), FileLock::State::kLocked) << first.text();
  EXPECT_TRUE(first.has_made_file());
  EXPECT_EQ(read_lock_text(file()), first.text());
  const FileLock second = FileLock::take(file());
  EXPECT_EQ(second.state(), FileLock::State::kTaken);
  EXPECT_EQ(second.text(), first.text());
  EXPECT_NE(second.text().find(fmt::format("process {} on ", getpid())), std::string::npos);
  first.remove();
  EXPECT_FALSE(std::filesystem::exists(file()));
  EXPECT_EQ(FileLock::take(file()).state(), FileLock::State::kLocked);
  const FileLock nowhere = FileLock::take(folder_ / "none/a.lock");
  EXPECT_EQ(nowhere.state(), FileLock::State::kFailed);
  EXPECT_EQ(nowhere.text(), "No such file or directory");
}

TEST_F(FileLocks, ADeadProcessHoldsNothing) {
  int ready[2];
  ASSERT_EQ(pipe(ready), 0);
  const pid_t child = fork();
  if (child == 0) {
    const FileLock held = FileLock::take(file());
    const char byte = held.state() == FileLock::State::kLocked ? 'y' : 'n';
    if (write(ready[1], &byte, 1) != 1) _exit(1);
    pause();
    _exit(0);
  }
  char byte = 0;
  ASSERT_EQ(read(ready[0], &byte, 1), 1);
  EXPECT_EQ(byte, 'y');
  EXPECT_EQ(FileLock::take(file()).state(), FileLock::State::kTaken);
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  const FileLock next = FileLock::take(file());
  EXPECT_EQ(next.state(), FileLock::State::kLocked) << next.text();
  EXPECT_FALSE(next.has_made_file());
  close(ready[0]);
  close(ready[1]);
}

// Also where the file is removed and made anew all the time.
TEST_F(FileLocks, NoTwoHaveItAtOnce) {
  std::atomic<int> holders = 0, most = 0, taken = 0;
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      int rounds = 0;
      for (int tries = 0; rounds < 10 && tries < 1'000'000; ++tries) {
        FileLock lock = FileLock::take(file());
        if (lock.state() != FileLock::State::kLocked) {
          std::this_thread::sleep_for(std::chrono::microseconds(50));
          continue;
        }
        const int now = ++holders;
        for (int seen = most; now > seen && !most.compare_exchange_weak(seen, now);) {
        }
        ++taken;
        std::this_thread::yield();
        --holders;
        if (++rounds % 2 == 0) lock.remove();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(most.load(), 1);
  EXPECT_EQ(taken.load(), 40);
}

}  // namespace
}  // namespace weft
