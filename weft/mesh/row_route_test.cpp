#include "weft/mesh/row_route.h"

#include <algorithm>
#include <numeric>
#include <random>
#include <set>

#include <gtest/gtest.h>

#include "tests/support/draws.h"

namespace weft {
namespace {

using List = std::vector<int64_t>;

bool holds(const List& list, int64_t row) {
  return std::find(list.begin(), list.end(), row) != list.end();
}

/// Moves row numbers as the route says and looks at who gave what.
void expect_right(const RowLists& held, const RowLists& needed, const Topology* topology = nullptr,
                  const List& world_ranks = {}) {
  const RowRoute route = plan_row_route(held, needed, topology, world_ranks);
  const size_t num_ranks = held.size();
  RowLists got(num_ranks);
  for (size_t rank = 0; rank < num_ranks; ++rank) {
    EXPECT_EQ(route.num_held[rank], std::ssize(held[rank]));
    EXPECT_EQ(route.num_needed[rank], std::ssize(needed[rank]));
    got[rank].assign(needed[rank].size(), -1);
  }
  std::set<std::pair<int64_t, int64_t>> pairs;
  for (const auto* messages : {&route.messages, &route.kept}) {
    for (const RowMessage& message : *messages) {
      EXPECT_EQ(message.from == message.to, messages == &route.kept);
      EXPECT_TRUE(pairs.insert({message.from, message.to}).second) << "two messages for a pair";
      ASSERT_EQ(message.sender_places.size(), message.receiver_places.size());
      EXPECT_GT(message.num_rows(), 0);
      EXPECT_TRUE(std::is_sorted(message.receiver_places.begin(), message.receiver_places.end()));
      const auto from = static_cast<size_t>(message.from), to = static_cast<size_t>(message.to);
      for (size_t i = 0; i < message.sender_places.size(); ++i) {
        const int64_t row = held[from].at(static_cast<size_t>(message.sender_places[i]));
        int64_t& place = got[to].at(static_cast<size_t>(message.receiver_places[i]));
        EXPECT_EQ(place, -1) << "a row comes twice";
        place = row;
        if (from == to) continue;
        EXPECT_FALSE(holds(held[to], row)) << "the rank has row " << row << " itself";
        if (topology == nullptr || topology->node_of(world_ranks[from]) == topology->node_of(world_ranks[to])) continue;
        for (size_t rank = 0; rank < num_ranks; ++rank) {
          if (topology->node_of(world_ranks[rank]) != topology->node_of(world_ranks[to])) continue;
          EXPECT_FALSE(holds(held[rank], row)) << "rank " << rank << " is nearer";
        }
      }
    }
  }
  const auto key = [](const RowMessage& m) { return std::pair(m.from, m.to); };
  const auto before = [&](const RowMessage& a, const RowMessage& b) { return key(a) < key(b); };
  EXPECT_TRUE(std::is_sorted(route.messages.begin(), route.messages.end(), before));
  EXPECT_TRUE(std::is_sorted(route.kept.begin(), route.kept.end(), before));
  for (size_t to = 0; to < num_ranks; ++to) {
    for (size_t place = 0; place < needed[to].size(); ++place) {
      const int64_t row = needed[to][place];
      const bool is_held = std::any_of(held.begin(), held.end(), [&](const List& list) { return holds(list, row); });
      EXPECT_EQ(got[to][place], is_held ? row : -1);
    }
  }
  EXPECT_EQ(route, plan_row_route(held, needed, topology, world_ranks));
}

RowLists random_lists(size_t num_ranks, int64_t num_rows, uint64_t percent, std::mt19937_64& random) {
  RowLists lists(num_ranks);
  for (List& list : lists) {
    for (int64_t row = 0; row < num_rows; ++row) {
      if (random() % 100 < percent) list.push_back(row);
    }
    if (random() % 2 == 0) std::shuffle(list.begin(), list.end(), random);
  }
  return lists;
}

TEST(RowRoute, EveryNeededRowComesOnceFromTheNearestThatHasIt) {
  for (uint64_t seed = 1; seed <= draws(uint64_t{400}); ++seed) {
    std::mt19937_64 random(seed);
    const size_t num_ranks = 1 + random() % 7;
    const auto num_rows = static_cast<int64_t>(random() % 40);
    const RowLists held = random_lists(num_ranks, num_rows, random() % 101, random);
    const RowLists needed = random_lists(num_ranks, num_rows, random() % 101, random);
    expect_right(held, needed);
    List ranks(num_ranks + 3);
    std::iota(ranks.begin(), ranks.end(), int64_t{0});
    std::shuffle(ranks.begin(), ranks.end(), random);
    ranks.resize(num_ranks);
    const Topology topology = *Topology::uniform(1 + static_cast<int64_t>(random() % 4), 1);
    expect_right(held, needed, &topology, ranks);
  }
}

List count_up(int64_t begin, int64_t end) {
  List rows(static_cast<size_t>(end - begin));
  std::iota(rows.begin(), rows.end(), begin);
  return rows;
}

TEST(RowRoute, CopiesShareTheLoadInWholePieces) {
  const List all = count_up(0, 12);
  const RowRoute route = plan_row_route({all, all, all, {}, {}}, {{}, {}, {}, all, all});
  ASSERT_EQ(route.messages.size(), 6u);
  for (const RowMessage& message : route.messages) {
    EXPECT_EQ(message.num_rows(), 4);
    EXPECT_EQ(message.receiver_places, count_up(message.from * 4, message.from * 4 + 4));
    EXPECT_EQ(message.sender_places, message.receiver_places);
  }
}

TEST(RowRoute, WhoMustSendRowsThatOnlyItHasSendsFewerOfTheOthers) {
  // Rank 0 alone has rows 0 to 5, ranks 0, 1 and 2 have rows 6 to 14.
  const List shared = count_up(6, 15);
  const RowRoute route = plan_row_route({count_up(0, 15), shared, shared, {}}, {{}, {}, {}, count_up(0, 15)});
  for (int64_t rank = 0; rank < 3; ++rank) EXPECT_EQ(row_traffic(route, rank).sent, rank == 0 ? 6 : rank == 1 ? 5 : 4);
  EXPECT_EQ(row_traffic(route, 3), (Traffic{.sent = 0, .received = 15}));
}

TEST(RowRoute, LoadsOfCopiesDifferByOneAtMost) {
  for (uint64_t seed = 1; seed <= 50; ++seed) {
    std::mt19937_64 random(seed);
    const size_t num_copies = 1 + random() % 5;
    const auto num_rows = static_cast<int64_t>(random() % 60);
    RowLists needed = random_lists(num_copies + 3, num_rows, 40, random), held(num_copies + 3);
    for (size_t rank = 0; rank < num_copies; ++rank) {
      held[rank] = count_up(0, num_rows);
      needed[rank].clear();
    }
    const RowRoute route = plan_row_route(held, needed);
    List loads;
    for (size_t rank = 0; rank < num_copies; ++rank)
      loads.push_back(row_traffic(route, static_cast<int64_t>(rank)).sent);
    const auto [least, most] = std::minmax_element(loads.begin(), loads.end());
    EXPECT_LE(*most - *least, 1);
  }
}

TEST(RowRoute, RowsThatARankNamesTwiceAreRefused) {
  EXPECT_ANY_THROW(plan_row_route({{1, 2, 1}, {}}, {{}, {1}}));
  EXPECT_ANY_THROW(plan_row_route({{1, 2}, {}}, {{}, {1, 1}}));
  EXPECT_ANY_THROW(plan_row_route({{-1}, {}}, {{}, {}}));
  EXPECT_ANY_THROW(plan_row_route({{}, {}}, {{}}));
}

}  // namespace
}  // namespace weft
