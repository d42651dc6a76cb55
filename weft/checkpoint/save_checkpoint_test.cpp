#include "weft/checkpoint/save_checkpoint.h"

#include <csignal>
#include <cstdlib>
#include <mutex>
#include <random>
#include <sys/resource.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

#include <gtest/gtest.h>

#include "tests/support/checkpoint/example_run.h"
#include "tests/support/weights/example_files.h"

namespace weft {
namespace {

std::vector<std::string> names_in(const std::filesystem::path& folder) {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) names.push_back(entry.path().filename());
  std::sort(names.begin(), names.end());
  return names;
}

TEST(SaveCheckpoint, LoadsAgain) {
  for (const int64_t zero : {0, 1, 2, 3}) {
    const ScratchFolder scratch;
    save_example(scratch / "checkpoints", {12}, 0, zero);
    EXPECT_EQ(names_in(scratch / "checkpoints"), std::vector<std::string>{"step-00000012"});
    EXPECT_EQ(load_problem(scratch / "checkpoints" / "step-00000012", zero), "");
    EXPECT_EQ(load_problem(scratch / "checkpoints" / "step-00000012", 3 - zero), "") << "with another ZeRO";
  }
}

TEST(SaveCheckpoint, RanksWithCopiesShareTheWriting) {
  const ScratchFolder scratch;
  save_example(scratch.path(), {1}, 0, 0);
  const Checkpoint checkpoint = *read_checkpoint(scratch / "step-00000001");
  ASSERT_EQ(checkpoint.files.size(), 2u);
  std::vector<int64_t> elements;
  for (const CheckpointFile& file : checkpoint.files) {
    elements.push_back(0);
    for (const StoredPart& part : file.parts) elements.back() += part.elements.size();
  }
  EXPECT_EQ(elements[0] + elements[1], 64 * 33 + 7 + 5 * 5) << "every element once";
  EXPECT_LE(std::abs(elements[0] - elements[1]), 1);
}

TEST(SaveCheckpoint, GoesOnWhileItIsWritten) {
  const ScratchFolder scratch;
  on_thread_ranks(kExampleRanks, [&](World& world) {
    const auto optimizer = example_optimizer(world, 1, 4'000);
    StageOptimizer* const all[] = {optimizer.get()};
    const Plan plan = example_plan(world.size());
    set_step(*optimizer, 5);
    auto save = CheckpointSave::begin({.checkpoints = scratch.path(), .step = 5, .plan = plan}, world.all(), all);
    WEFT_CHECK(save.ok(), "{}", save.error().message());
    set_step(*optimizer, 6);  // what was copied is what is saved
    for (int polls = 0;; ++polls) {
      const auto saved = (*save)->poll();
      WEFT_CHECK(saved.ok(), "{}", saved.error().message());
      if (*saved) break;
      WEFT_CHECK(polls < 100'000, "it does not end");
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    // One that nobody waits for leaves nothing.
    auto given_up = CheckpointSave::begin({.checkpoints = scratch.path(), .step = 7, .plan = plan}, world.all(), all);
    WEFT_CHECK(given_up.ok(), "{}", given_up.error().message());
    given_up->reset();
    world.all().barrier().wait();
  });
  EXPECT_EQ(names_in(scratch.path()), std::vector<std::string>{"step-00000005"});
  EXPECT_EQ(load_problem(scratch / "step-00000005", 1, 4'000), "");
}

TEST(SaveCheckpoint, IsOutsideTheTimeOut) {
  const ScratchFolder scratch;
  const auto error = run_thread_ranks(kExampleRanks, {.timeout = std::chrono::milliseconds(200)}, [&](World& world) {
    const auto optimizer = example_optimizer(world, 1);
    StageOptimizer* const all[] = {optimizer.get()};
    const UnlimitedWaits patience(world.all());
    if (world.rank() == 0) std::this_thread::sleep_for(std::chrono::milliseconds(600));
    const auto saved = save_checkpoint({.checkpoints = scratch.path(), .step = 5, .plan = example_plan(kExampleRanks)},
                                       world.all(), all);
    WEFT_CHECK(saved.ok(), "{}", saved.error().message());
  });
  EXPECT_FALSE(error);
  EXPECT_THROW(static_cast<void>(run_thread_ranks(kExampleRanks, {.timeout = std::chrono::milliseconds(200)},
                                                  [&](World& world) {
                                                    { const UnlimitedWaits patience(world.all()); }
                                                    if (world.rank() == 0)
                                                      std::this_thread::sleep_for(std::chrono::milliseconds(600));
                                                    world.all().barrier().wait();
                                                  })),
               std::exception);
}

TEST(SaveCheckpoint, KeepsTheLastOnes) {
  const ScratchFolder scratch;
  save_example(scratch.path(), {1, 2, 3, 10}, 2);
  EXPECT_EQ(*list_checkpoints(scratch.path()), (std::vector<int64_t>{3, 10}));
  save_example(scratch.path(), {11, 12, 13}, 0);
  EXPECT_EQ(*list_checkpoints(scratch.path()), (std::vector<int64_t>{3, 10, 11, 12, 13}));
  // A run that went back: what lies ahead of it is not its own.
  save_example(scratch.path(), {5}, 1);
  EXPECT_EQ(*list_checkpoints(scratch.path()), (std::vector<int64_t>{5, 10, 11, 12, 13}));
  EXPECT_EQ((*newest_checkpoint(scratch.path()))->filename(), "step-00000013");
  for (const int64_t step : {5, 10, 13}) EXPECT_EQ(load_problem(scratch / checkpoint_name(step)), "");
}

TEST(SaveCheckpoint, ReplacesTheSameStep) {
  const ScratchFolder scratch;
  save_example(scratch.path(), {4}, 0, 1);
  scratch.write("step-00000004/note", "of the old one");
  save_example(scratch.path(), {4}, 0, 0);
  EXPECT_EQ(names_in(scratch / "step-00000004"),
            (std::vector<std::string>{"checkpoint.json", "rank-00000.safetensors", "rank-00001.safetensors"}));
  EXPECT_EQ(names_in(scratch.path()), std::vector<std::string>{"step-00000004"});
  EXPECT_EQ(load_problem(scratch / "step-00000004"), "");
}

TEST(SaveCheckpoint, LeftoversAreIgnoredAndThenRemoved) {
  const ScratchFolder scratch;
  save_example(scratch.path(), {4});
  std::filesystem::create_directory(scratch / ".saving-step-00000009");
  scratch.write(".saving-step-00000009/rank-00000.safetensors", "half");
  std::filesystem::create_directory(scratch / ".removing-step-00000002");
  scratch.write(".removing-step-00000002/checkpoint.json", "{}");
  scratch.write("step-9", "no checkpoint's name");
  std::filesystem::create_directory(scratch / ".saving-model");
  EXPECT_EQ((*newest_checkpoint(scratch.path()))->filename(), "step-00000004");
  save_example(scratch.path(), {5});
  EXPECT_EQ(names_in(scratch.path()),
            (std::vector<std::string>{".saving-model", "step-00000004", "step-00000005", "step-9"}))
      << "what another program writes stays";
}

TEST(SaveCheckpoint, WhatStoodAsideForASuccessorThatDidNotComeIsThereAgain) {
  const ScratchFolder scratch;
  save_example(scratch.path(), {4});
  std::filesystem::rename(scratch / "step-00000004", scratch / ".replaced-step-00000004");
  std::filesystem::create_directory(scratch / ".saving-step-00000004");
  save_example(scratch.path(), {5});
  EXPECT_EQ(names_in(scratch.path()), (std::vector<std::string>{"step-00000004", "step-00000005"}));
  EXPECT_EQ(load_problem(scratch / "step-00000004"), "");
}

TEST(SaveCheckpoint, AFolderThatCannotBeMadeIsAnErrorOnAllRanks) {
  const ScratchFolder scratch;
  scratch.write("file", "");
  std::mutex guard;
  std::vector<std::string> messages;
  on_thread_ranks(kExampleRanks, [&](World& world) {
    const auto optimizer = example_optimizer(world, 1);
    const auto saved = save_at_step(scratch / "file" / "checkpoints", 1, world, *optimizer);
    const std::lock_guard lock(guard);
    messages.push_back(saved ? "" : saved.error().message());
  });
  EXPECT_EQ(messages[0], messages[1]);
  EXPECT_NE(messages[0].find("/file/checkpoints: cannot be read: Not a directory"), std::string::npos) << messages[0];
}

/// No file of this process may grow beyond a size, as on a disk that is full.
class FileSizeLimit {
 public:
  explicit FileSizeLimit(rlim_t bytes) : handler_(std::signal(SIGXFSZ, SIG_IGN)) {
    getrlimit(RLIMIT_FSIZE, &before_);
    const rlimit limit{bytes, before_.rlim_max};
    setrlimit(RLIMIT_FSIZE, &limit);
  }
  FileSizeLimit(const FileSizeLimit&) = delete;
  FileSizeLimit& operator=(const FileSizeLimit&) = delete;
  ~FileSizeLimit() {
    setrlimit(RLIMIT_FSIZE, &before_);
    std::signal(SIGXFSZ, handler_);
  }

 private:
  rlimit before_{};
  void (*handler_)(int);
};

TEST(SaveCheckpoint, AWriteThatFailsOnOneRankIsAnErrorOnAllAndHarmsNothing) {
  const ScratchFolder scratch;
  std::mutex guard;
  std::vector<std::string> messages;
  on_thread_ranks(kExampleRanks, [&](World& world) {
    // Each rank trains a weight of its own, the second a large one.
    Group alone = *world.group("alone", {world.rank()});
    const bool is_large = world.rank() == 1;
    StageOptimizer optimizer({{example_parameter(is_large ? "large" : "small", {is_large ? 100'000 : 10})}}, alone,
                             example_options(0));
    const auto before = save_at_step(scratch.path(), 1, world, optimizer);
    WEFT_CHECK(before.ok(), "{}", before.error().message());
    world.all().barrier().wait();
    std::optional<FileSizeLimit> limit;
    if (is_large) limit.emplace(500'000);
    world.all().barrier().wait();
    const auto saved = save_at_step(scratch.path(), 2, world, optimizer, 1);
    world.all().barrier().wait();
    limit.reset();
    const std::lock_guard lock(guard);
    messages.push_back(saved ? "" : saved.error().message());
  });
  EXPECT_EQ(messages[0], messages[1]);
  EXPECT_NE(messages[0].find("rank-00001.safetensors: cannot be written: File too large"), std::string::npos)
      << messages[0];
  EXPECT_EQ(names_in(scratch.path()), std::vector<std::string>{"step-00000001"});
  EXPECT_TRUE(read_checkpoint(scratch / "step-00000001").ok());
}

// Runs only in the process that the test below starts and ends.
TEST(SaveCheckpoint, DISABLED_SavesUntilItIsKilled) {
  const std::filesystem::path folder = std::getenv("WEFT_TEST_CHECKPOINTS");
  const auto steps = *list_checkpoints(folder);
  on_thread_ranks(kExampleRanks, [&](World& world) {
    const auto optimizer = example_optimizer(world, 1, 4'000);
    for (int64_t step = steps.empty() ? 1 : steps.back() + 1;; ++step) {
      const auto saved = save_at_step(folder, step, world, *optimizer, 2);
      WEFT_CHECK(saved.ok(), "{}", saved.error().message());
    }
  });
}

pid_t start_saving(const std::filesystem::path& folder) {
  const pid_t child = fork();
  if (child != 0) return child;
  setenv("WEFT_TEST_CHECKPOINTS", folder.c_str(), 1);
  execl("/proc/self/exe", "weft_checkpoint_test", "--gtest_also_run_disabled_tests", "--gtest_brief=1",
        "--gtest_filter=SaveCheckpoint.DISABLED_SavesUntilItIsKilled", nullptr);
  _exit(127);
}

TEST(SaveCheckpoint, ACrashAtAnyInstantLeavesWholeCheckpoints) {
  const ScratchFolder scratch;
  const std::filesystem::path folder = scratch / "checkpoints";
  std::mt19937_64 random(std::random_device{}());
  int64_t last = 0;
  int num_cut_off = 0;
  size_t num_left = 0;
  const char* wanted = std::getenv("WEFT_KILLS");
  const int rounds = wanted != nullptr ? std::stoi(wanted) : 8;
  for (int round = 0; round < rounds; ++round) {
    const pid_t child = start_saving(folder);
    // It has begun when there is a newer one than before.
    const auto give_up = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    while (std::chrono::steady_clock::now() < give_up) {
      const auto steps = *list_checkpoints(folder);
      if (!steps.empty() && steps.back() > last) break;
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    std::this_thread::sleep_for(std::chrono::microseconds(random() % 60'000));
    kill(child, SIGKILL);
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFSIGNALED(status)) << "it ended by itself";
    for (const std::string& name : names_in(folder)) num_cut_off += name.starts_with('.') ? 1 : 0;
    const auto steps = *list_checkpoints(folder);
    ASSERT_FALSE(steps.empty());
    ASSERT_GT(steps.back(), last);
    // The new one beside those that were there until then, at most: two, or more where the one before was killed
    // between a new checkpoint and the removal of an old one, and this one as well.
    EXPECT_LE(steps.size(), std::max<size_t>(num_left, 2) + 1);
    num_left = steps.size();
    EXPECT_GE(steps.size(), steps.back() > 1 ? 2U : 1U);
    for (const int64_t step : steps) ASSERT_EQ(load_problem(folder / checkpoint_name(step), 1, 4'000), "");
    last = steps.back();
  }
  // Else all of them were killed between two saves, and nothing was tried.
  EXPECT_GT(num_cut_off, 0);
}

}  // namespace
}  // namespace weft
