// Thread ranks that throw, return or stay away in the middle of anything: everyone ends, and one message says why.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <random>
#include <thread>

#include <gtest/gtest.h>

#include "weft/comm/failure.h"
#include "weft/comm/threads/run_threads.h"

namespace weft::thread_failures_test {
namespace {

using Clock = std::chrono::steady_clock;

struct Outcome {
  std::string message;  ///< empty when nothing failed
  int64_t rank = -1;
  double seconds = 0;
};

Outcome outcome_of(int64_t size, const CommOptions& options, const std::function<void(World&)>& body) {
  const auto start = Clock::now();
  Outcome outcome;
  try {
    const auto error = run_thread_ranks(size, options, body);
    if (error) outcome.message = error->message();
  } catch (const RankFailure& failure) {
    outcome.message = failure.what();
    outcome.rank = failure.rank();
  }
  outcome.seconds = std::chrono::duration<double>(Clock::now() - start).count();
  return outcome;
}

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

Buffer floats(std::vector<float>& values) {
  return {.data = values.data(), .count = static_cast<int64_t>(values.size()), .type = DataType::kFp32};
}

TEST(ThreadFailures, OneMessageNamesTheRankThatThrewAndWhoWaitedForItWhere) {
  const Outcome outcome = outcome_of(4, {}, [](World& world) {
    std::vector<float> values(1000, 1);
    Group group = *world.group("tp", {0, 1, 2, 3});
    group.all_reduce(floats(values), Reduction::kSum).wait();
    if (world.rank() == 2) throw std::runtime_error("out of memory");
    group.all_reduce(floats(values), Reduction::kSum).wait();
  });
  EXPECT_EQ(outcome.rank, 2);
  EXPECT_TRUE(contains(outcome.message, "rank 2 failed: out of memory")) << outcome.message;
  EXPECT_TRUE(
      contains(outcome.message, "rank 0 waited for it in all_reduce of 1000 fp32 (sum), operation 2 of group 'tp'"))
      << outcome.message;
  EXPECT_TRUE(contains(outcome.message, "before that: finished all_reduce")) << outcome.message;
  EXPECT_LT(outcome.seconds, 5);
}

TEST(ThreadFailures, WhatTheRankThrewIsNested) {
  try {
    (void)run_thread_ranks(2, {}, [](World& world) {
      if (world.rank() == 1) throw std::out_of_range("table");
      world.all().barrier().wait();
    });
    FAIL() << "nothing was thrown";
  } catch (const RankFailure& failure) {
    EXPECT_THROW(std::rethrow_if_nested(failure), std::out_of_range);
  }
}

TEST(ThreadFailures, ARankThatReturnsEarlyIsNamed) {
  const Outcome outcome = outcome_of(3, {}, [](World& world) {
    if (world.rank() == 1) return;
    std::vector<float> values(10);
    world.all().recv(floats(values), 1).wait();
  });
  EXPECT_EQ(outcome.rank, 1);
  EXPECT_TRUE(contains(outcome.message, "rank 1 returned early")) << outcome.message;
  EXPECT_TRUE(contains(outcome.message, "in recv of 10 fp32 from its rank 1, operation 1 of group 'world'"))
      << outcome.message;
}

TEST(ThreadFailures, ARankThatLeftAfterDoingItsPartIsNotMissed) {
  const Outcome outcome = outcome_of(3, {}, [](World& world) {
    std::vector<float> values(50'000, 1);
    Work work = world.all().all_reduce(floats(values), Reduction::kSum);
    if (world.rank() == 2) std::this_thread::sleep_for(std::chrono::milliseconds(20));
    work.wait();
    if (world.rank() == 0) return;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
    Group pair = *world.group("pair", {1, 2});
    pair.all_reduce(floats(values), Reduction::kSum).wait();
    EXPECT_EQ(values[0], 6);
  });
  EXPECT_EQ(outcome.message, "");
}

TEST(ThreadFailures, ARankThatStaysAwayIsNamedWithWhatItDoes) {
  std::atomic<bool> is_over = false;
  const Outcome outcome = outcome_of(3, {.timeout = std::chrono::milliseconds(200)}, [&](World& world) {
    if (world.rank() == 1) {
      world.all().barrier().wait();
      while (!is_over) std::this_thread::sleep_for(std::chrono::milliseconds(1));
      return;
    }
    world.all().barrier().wait();
    try {
      world.all().barrier().wait();
    } catch (...) {
      is_over = true;
      throw;
    }
  });
  EXPECT_EQ(outcome.rank, 1);
  EXPECT_TRUE(contains(outcome.message, "rank 1 did not come within 0.2 s (before that: finished barrier, operation 1"))
      << outcome.message;
  EXPECT_TRUE(contains(outcome.message, "waited for it in barrier, operation 2 of group 'world'")) << outcome.message;
}

TEST(ThreadFailures, TwoSendsThatFaceEachOtherEndInsteadOfHanging) {
  const Outcome outcome = outcome_of(2, {.timeout = std::chrono::milliseconds(100)}, [&](World& world) {
    std::vector<float> values(10);
    world.all().send(floats(values), 1 - world.rank()).wait();
    world.all().recv(floats(values), 1 - world.rank()).wait();
  });
  EXPECT_TRUE(contains(outcome.message, "awaiting send of 10 fp32")) << outcome.message;
  EXPECT_LT(outcome.seconds, 5);
}

TEST(ThreadFailures, ARankThatDropsAHandleAndGoesOnIsNamed) {
  std::atomic<bool> has_dropped = false;
  const Outcome outcome = outcome_of(2, {}, [&](World& world) {
    std::vector<float> values(1 << 20, 1.0f);
    if (world.rank() == 1) {
      { const Work dropped = world.all().all_reduce(floats(values), Reduction::kSum); }
      has_dropped = true;
      world.all().barrier().wait();
    }
    while (!has_dropped) std::this_thread::yield();
    world.all().all_reduce(floats(values), Reduction::kSum).wait();
  });
  EXPECT_EQ(outcome.rank, 1);
  EXPECT_TRUE(contains(outcome.message, "rank 1 abandoned the operation and went on")) << outcome.message;
  EXPECT_LT(outcome.seconds, 5);
}

TEST(ThreadFailures, NobodyTouchesTheBuffersOfADroppedHandle) {
  // A sanitizer sees whoever does.
  for (int round = 0; round < 50; ++round) {
    const Outcome outcome = outcome_of(2, {}, [&](World& world) {
      auto values = std::make_unique<std::vector<float>>(1 << 20, 1.0f);
      Work work = world.all().all_reduce(floats(*values), Reduction::kSum);
      if (world.rank() == 0) work.wait();
    });
    // Rank 0 may have done it all before rank 1 dropped its handle.
    EXPECT_TRUE(outcome.message.empty() || contains(outcome.message, "rank 1 returned early")) << outcome.message;
  }
}

TEST(ThreadFailures, ADisagreementEndsTheRun) {
  const Outcome outcome = outcome_of(3, {}, [&](World& world) {
    std::vector<float> values(world.rank() == 1 ? 9 : 10);
    world.all().all_reduce(floats(values), Reduction::kSum).wait();
  });
  EXPECT_TRUE(contains(outcome.message, "rank 0 asks for all_reduce of 10 fp32 (sum), rank 1 for all_reduce of 9"))
      << outcome.message;
}

TEST(ThreadFailures, TheLastOperationsAreKeptInFilesWhenARunFails) {
  const auto folder = std::filesystem::temp_directory_path() / ("weft_records_test_" + std::to_string(getpid()));
  const CommOptions options{.records = folder};
  EXPECT_EQ(outcome_of(2, options, [](World& world) { world.all().barrier().wait(); }).message, "");
  EXPECT_FALSE(read_record(folder, 0).has_value());
  EXPECT_NE(outcome_of(2, options,
                       [](World& world) {
                         if (world.rank() == 1) throw std::runtime_error("broken");
                         world.all().barrier().wait();
                       })
                .message,
            "");
  EXPECT_TRUE(
      contains(read_record(folder, 0).value_or("none"), " UTC: awaiting barrier, operation 1 of group 'world'"));
  EXPECT_TRUE(contains(read_record(folder, 1).value_or("none"), ": no operation yet"));
  std::filesystem::remove_all(folder);
}

TEST(ThreadFailures, RecordsThatCannotBeKeptAreToldBeforeAnythingRuns) {
  bool has_run = false;
  const Outcome outcome = outcome_of(1, {.records = "/proc/nowhere"}, [&](World&) { has_run = true; });
  EXPECT_TRUE(contains(outcome.message, "WEFT_RECORDS")) << outcome.message;
  EXPECT_FALSE(has_run);
}

/// A program of all kinds of operations, many in flight, on several groups, that never ends by itself.
void work_for_ever(World& world, std::mt19937& random, int until, const std::function<void()>& at_the_end) {
  Group& all = world.all();
  Group half = *world.group("half", world.rank() % 2 == 0 ? std::vector<int64_t>{0, 2} : std::vector<int64_t>{1, 3});
  std::vector<float> a(30'000, 1), b(64, 1), c(64), d(256), e(64), f(64);
  for (int step = 0;; ++step) {
    if (step == until) at_the_end();
    std::vector<Work> works;
    works.push_back(all.all_reduce(floats(a), Reduction::kMax));
    works.push_back(half.all_reduce(floats(b), Reduction::kAvg));
    works.push_back(all.send(floats(f), (world.rank() + 1) % 4));
    works.push_back(all.recv(floats(c), (world.rank() + 3) % 4));
    works.push_back(all.all_gather(floats(e), floats(d)));
    if (step == until && random() % 2 == 0) at_the_end();
    std::shuffle(works.begin() + 1, works.end(), random);
    for (Work& work : works) {
      work.wait();
      if (step == until && random() % 3 == 0) at_the_end();
    }
    all.barrier().wait();
  }
}

TEST(ThreadFailures, RanksThatEndAtRandomPointsNeverHangTheOthers) {
  struct Gone {};
  std::mt19937 random(20'261'115);
  for (int round = 0; round < 60; ++round) {
    const auto dead = static_cast<int64_t>(random() % 4);
    const int until = static_cast<int>(random() % 20);
    const bool throws = random() % 2 == 0;
    const auto seed = static_cast<uint32_t>(random());
    const Outcome outcome = outcome_of(4, {.timeout = std::chrono::seconds(60)}, [&](World& world) {
      std::mt19937 own(seed + static_cast<uint32_t>(world.rank()));
      const bool is_dead = world.rank() == dead;
      try {
        work_for_ever(world, own, is_dead ? until : -1, [&] {
          if (throws) throw std::runtime_error("it is over");
          throw Gone{};
        });
      } catch (const Gone&) {  // returns early
      }
    });
    EXPECT_EQ(outcome.rank, dead) << outcome.message;
    EXPECT_TRUE(contains(outcome.message, throws ? "failed: it is over" : "returned early")) << outcome.message;
    EXPECT_TRUE(contains(outcome.message, "waited for it in")) << outcome.message;
    EXPECT_LT(outcome.seconds, 5) << outcome.message;
  }
}

}  // namespace
}  // namespace weft::thread_failures_test
