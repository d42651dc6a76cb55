#include "weft/checkpoint/weight_route.h"

#include <gtest/gtest.h>

namespace weft {
namespace {

/// All rows of a weight of one column, or some of them.
RoutedPart part_of(int64_t rank, const std::string& name, int64_t num_rows, int64_t begin = 0, int64_t end = -1) {
  return {.rank = rank,
          .piece = whole_weight(name, {num_rows, 1}),
          .elements = {begin, end < 0 ? num_rows : end},
          .is_trained = false,
          .kin = {}};
}

std::vector<int64_t> readers_of(const std::vector<RoutedPart>& held, const std::vector<RoutedPart>& wanted,
                                int64_t least_bytes) {
  const PartIndex index(held, "the test");
  const auto copies = route_files(index, wanted);
  EXPECT_TRUE(copies.ok()) << copies.error().message();
  return assign_readers(index, wanted, *copies, least_bytes);
}

constexpr int64_t kBytes = 4;  // of an element

TEST(AssignReaders, APartIsReadByTheRankThatWantsMostOfIt) {
  const std::vector<RoutedPart> held = {part_of(0, "a", 90), part_of(0, "b", 100)};
  EXPECT_EQ(readers_of(held, {part_of(1, "a", 90, 0, 30), part_of(2, "a", 90, 30, 90), part_of(1, "b", 100)}, 1),
            (std::vector<int64_t>{2, 1}));
  // Of equals the one that has least to read, and before all the one that wrote it.
  EXPECT_EQ(readers_of(held, {part_of(1, "a", 90), part_of(1, "b", 100), part_of(2, "b", 100)}, 1),
            (std::vector<int64_t>{1, 2}));
  EXPECT_EQ(readers_of(held, {part_of(0, "a", 90), part_of(2, "a", 90), part_of(2, "b", 100)}, 1),
            (std::vector<int64_t>{0, 2}));
}

// In the order of their names, as they lie in the file, whatever the order of the description.
TEST(AssignReaders, WhatLiesBesideEachOtherIsReadTogether) {
  const std::vector<RoutedPart> held = {part_of(0, "d", 10), part_of(0, "a", 10), part_of(0, "c", 10),
                                        part_of(0, "b", 11), part_of(0, "e", 1)};
  const std::vector<RoutedPart> wanted = {part_of(1, "a", 10), part_of(2, "b", 11), part_of(3, "c", 10),
                                          part_of(3, "d", 10), part_of(1, "e", 1)};
  EXPECT_EQ(readers_of(held, wanted, 1), (std::vector<int64_t>{3, 1, 3, 2, 1}));
  // a with b, and c with d; e is too little for a reader of its own and goes with those before it.
  EXPECT_EQ(readers_of(held, wanted, 11 * kBytes), (std::vector<int64_t>{3, 2, 3, 2, 3}));
  EXPECT_EQ(readers_of(held, wanted, 1000), (std::vector<int64_t>{3, 3, 3, 3, 3}));
}

// What nobody reads is no part of what a reader has at least.
TEST(AssignReaders, CopiesThatNobodyReadsDoNotCount) {
  const std::vector<RoutedPart> held = {part_of(0, "a", 10), part_of(0, "b", 100), part_of(0, "c", 12),
                                        part_of(1, "b", 100)};
  const std::vector<RoutedPart> wanted = {part_of(2, "a", 10), part_of(1, "b", 100), part_of(3, "c", 12)};
  const std::vector<int64_t> readers = readers_of(held, wanted, 20 * kBytes);
  EXPECT_EQ(readers[0], 3);
  EXPECT_EQ(readers[2], 3);
  EXPECT_EQ(readers[3], 1);
}

TEST(AssignReaders, RanksThatWantWhatTheyWroteReadTheirOwnFiles) {
  std::vector<RoutedPart> held;
  for (const int64_t rank : {0, 1, 2}) {
    for (const char* name : {"a", "b", "c"}) {
      RoutedPart part = part_of(rank, name, 30, 10 * rank, 10 * rank + 10);
      part.kin = {0, 1, 2};
      held.push_back(part);
    }
  }
  for (const int64_t least_bytes : {1, 100, 10'000})
    EXPECT_EQ(readers_of(held, held, least_bytes), (std::vector<int64_t>{0, 0, 0, 1, 1, 1, 2, 2, 2}));
}

}  // namespace
}  // namespace weft
