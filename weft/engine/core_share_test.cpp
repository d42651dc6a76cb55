#include "weft/engine/core_share.h"

#include <gtest/gtest.h>

#include "tests/support/comm/environment.h"

namespace weft {
namespace {

TEST(CoreShare, ThreadRanksShareAllCores) {
  const Environment plain({});
  const int cores = usable_cores();
  ASSERT_GT(cores, 0);
  const CoreShare one = share_cores({}, 1, 0);
  EXPECT_EQ(one.threads_per_rank, cores);
  EXPECT_EQ(one.threads_per_core(), 1);
  const CoreShare crowd = share_cores({}, int64_t{4} * cores, 0);
  EXPECT_EQ(crowd.threads_per_rank, 1);
  EXPECT_EQ(crowd.threads_per_core(), 4);
  EXPECT_EQ(share_cores({}, 2, 3).threads_per_rank, 3);
}

TEST(CoreShare, WhatRanksThatShareCoresCostIsSaid) {
  const TrainConfig config{.source = "train.yaml", .device = "cpu"};
  EXPECT_TRUE(notes_of({.cores = 8, .ranks = 8, .threads_per_rank = 1}, config).empty());
  EXPECT_TRUE(notes_of({.cores = 8, .ranks = 3, .threads_per_rank = 2}, config).empty());
  const auto shared = notes_of({.cores = 2, .ranks = 8, .threads_per_rank = 1}, config);
  ASSERT_EQ(shared.size(), 1u);
  EXPECT_EQ(shared[0], "8 ranks compute on 2 cores: steps take about 4 times as long as on 8 cores");
  const auto threads = notes_of({.cores = 4, .ranks = 2, .threads_per_rank = 3}, config);
  ASSERT_EQ(threads.size(), 1u);
  EXPECT_EQ(threads[0],
            "2 ranks with 3 threads each compute on 4 cores: steps take about 1.5 times as long as on 6 cores");
  const TrainConfig gpu{.source = "train.yaml", .device = "cuda"};
  EXPECT_TRUE(notes_of({.cores = 2, .ranks = 8, .threads_per_rank = 1}, gpu).empty());
}

TEST(CoreShare, MoreThreadsThanCoresIsANoteAndFarMoreAnError) {
  TrainConfig config{.source = "train.yaml", .device = "cpu", .threads_per_rank = 8};
  EXPECT_FALSE(check_threads(config, 2));
  const auto notes = notes_of({.cores = 2, .ranks = 1, .threads_per_rank = 8}, config);
  ASSERT_EQ(notes.size(), 1u);
  EXPECT_EQ(notes[0],
            "train.yaml: threads_per_rank is 8, but there are 2 cores: threads wait for each other. Without the field "
            "the cores are shared out");
  config.threads_per_rank = 64;
  EXPECT_FALSE(check_threads(config, 2));
  config.threads_per_rank = 65;
  const auto error = check_threads(config, 2);
  ASSERT_TRUE(error.has_value());
  EXPECT_EQ(error->message(),
            "train.yaml: threads_per_rank: is 65, a whole number from 1 to 64 is needed on 2 cores. Leave it out: the "
            "cores are shared out among the ranks then.");
}

}  // namespace
}  // namespace weft
