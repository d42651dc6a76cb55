#include "weft/cost/collective_time.h"

#include <array>

#include <gtest/gtest.h>

namespace weft {
namespace {

using Collective = double (*)(const GroupLink&, double);
constexpr std::array<Collective, 5> kAll = {all_gather_ms, reduce_scatter_ms, all_reduce_ms, all_to_all_ms,
                                            ring_step_ms};

GroupLink ring_of(int64_t ranks, double latency_ms = 0.01) {
  return {.num_ranks = ranks,
          .ranks_per_node = ranks,
          .ring_bytes_per_ms = 1e6,
          .within_bytes_per_ms = 1e6,
          .latency_ms = latency_ms,
          .within_latency_ms = latency_ms};
}

TEST(CollectiveTime, AGroupOfOneTakesNoTime) {
  for (const Collective collective : kAll) EXPECT_EQ(collective(ring_of(1, 5), 1e9), 0);
}

TEST(CollectiveTime, RingsPassAllButOneShareAndTakeAHopForEachOtherRank) {
  // (n − 1)/n of 8 MB at 1 MB/ms, and n − 1 hops.
  EXPECT_DOUBLE_EQ(all_gather_ms(ring_of(2), 8e6), 4 + 0.01);
  EXPECT_DOUBLE_EQ(all_gather_ms(ring_of(4), 8e6), 6 + 0.03);
  EXPECT_DOUBLE_EQ(all_gather_ms(ring_of(8), 8e6), 7 + 0.07);
  EXPECT_DOUBLE_EQ(all_gather_ms(ring_of(1024), 8e6), 8 * 1023.0 / 1024 + 10.23);
  EXPECT_DOUBLE_EQ(ring_step_ms(ring_of(4), 8e6), 8 + 0.01);
}

TEST(CollectiveTime, ARingOverNodesLeavesEachOnce) {
  GroupLink link = ring_of(16, 0.1);
  link.num_nodes = 4;
  link.ranks_per_node = 4;
  link.within_latency_ms = 0.01;
  // Fifteen hops, three of them between nodes.
  EXPECT_DOUBLE_EQ(all_gather_ms(link, 0), 3 * 0.1 + 12 * 0.01);
}

TEST(CollectiveTime, AllReduceIsReduceScatterAndAllGatherOrATreeWhereThatIsShorter) {
  for (const int64_t ranks : {2, 3, 4}) {
    for (const double bytes : {0.0, 1.0, 1e3, 1e9}) {
      EXPECT_DOUBLE_EQ(all_reduce_ms(ring_of(ranks), bytes),
                       reduce_scatter_ms(ring_of(ranks), bytes) + all_gather_ms(ring_of(ranks), bytes));
    }
  }
  // 2 · 2 · log2(n) hops.
  EXPECT_DOUBLE_EQ(all_reduce_ms(ring_of(8), 0), 0.12);
  EXPECT_DOUBLE_EQ(all_reduce_ms(ring_of(1024), 0), 0.4);
}

TEST(CollectiveTime, MoreBytesAndMoreRanksNeverTakeLess) {
  for (const Collective collective : kAll) {
    for (int64_t ranks = 1; ranks < 300; ++ranks) {
      double before = 0;
      for (const double bytes : {0.0, 1.0, 1e3, 1e6, 1e9}) {
        const double ms = collective(ring_of(ranks), bytes);
        EXPECT_GE(ms, before) << ranks << " ranks, " << bytes << " bytes";
        EXPECT_GE(collective(ring_of(ranks + 1), bytes), ms) << ranks << " ranks, " << bytes << " bytes";
        before = ms;
      }
    }
  }
}

TEST(CollectiveTime, AllToAllKeepsOneShareAndSendsTheRest) {
  // Four ranks of a node: each sends three quarters of its 8 MB.
  EXPECT_DOUBLE_EQ(all_to_all_ms(ring_of(4, 0), 8e6), 6);
  // Two nodes of four: half of what all four hold leaves through the group's 2 MB/ms of cards.
  const GroupLink across{
      .num_ranks = 8, .ranks_per_node = 4, .ring_bytes_per_ms = 2e6, .within_bytes_per_ms = 100e6, .latency_ms = 0};
  EXPECT_DOUBLE_EQ(all_to_all_ms(across, 8e6), 4 * 0.5 * 8e6 / 2e6);
}

}  // namespace
}  // namespace weft
