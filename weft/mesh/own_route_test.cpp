#include "weft/mesh/own_route.h"

#include <algorithm>
#include <numeric>
#include <random>

#include <gtest/gtest.h>

#include "tests/support/draws.h"
#include "tests/support/mesh/row_route.h"

namespace weft {
namespace {

using List = std::vector<int64_t>;

bool holds(const List& list, int64_t row) {
  return std::find(list.begin(), list.end(), row) != list.end();
}

List places_of(const std::vector<Range>& ranges) {
  List places;
  for (const Range& range : ranges) {
    EXPECT_FALSE(range.empty());
    for (int64_t place = range.begin; place < range.end; ++place) places.push_back(place);
  }
  return places;
}

/// Every rank's own route.
std::vector<OwnRoute> all_routes(const RowLists& held, const RowLists& needed) {
  std::vector<OwnRoute> routes;
  for (int64_t rank = 0; rank < std::ssize(held); ++rank) routes.push_back(plan_own_route(held, needed, rank));
  return routes;
}

/// Moves row numbers as ranks send and receive them, each by its own route, and looks at who gave what.
void expect_right(const RowLists& held, const RowLists& needed) {
  const std::vector<OwnRoute> routes = all_routes(held, needed);
  for (size_t to = 0; to < held.size(); ++to) {
    const OwnRoute& route = routes[to];
    EXPECT_EQ(route.num_held, std::ssize(held[to]));
    EXPECT_EQ(route.num_needed, std::ssize(needed[to]));
    List got(needed[to].size(), -1);
    const auto put = [&](const List& from_places, const List& to_places, const List& from) {
      ASSERT_EQ(from_places.size(), to_places.size());
      EXPECT_TRUE(std::is_sorted(to_places.begin(), to_places.end()));
      for (size_t i = 0; i < to_places.size(); ++i) {
        int64_t& place = got.at(static_cast<size_t>(to_places[i]));
        EXPECT_EQ(place, -1) << "a row comes twice";
        place = from.at(static_cast<size_t>(from_places[i]));
      }
    };
    put(places_of(route.kept_from), places_of(route.kept_to), held[to]);
    int64_t last_peer = -1;
    for (const OwnMessage& message : route.received) {
      EXPECT_GT(message.peer, std::exchange(last_peer, message.peer)) << "out of order, or two messages for a pair";
      const OwnRoute& sender = routes[static_cast<size_t>(message.peer)];
      const auto other = std::find_if(sender.sent.begin(), sender.sent.end(),
                                      [&](const OwnMessage& sent) { return sent.peer == static_cast<int64_t>(to); });
      ASSERT_NE(other, sender.sent.end());
      put(places_of(other->places), places_of(message.places), held[static_cast<size_t>(message.peer)]);
      for (const int64_t place : places_of(message.places))
        EXPECT_FALSE(holds(held[to], got[static_cast<size_t>(place)])) << "the rank has the row itself";
    }
    for (size_t place = 0; place < needed[to].size(); ++place) {
      const int64_t row = needed[to][place];
      const bool is_held = std::any_of(held.begin(), held.end(), [&](const List& list) { return holds(list, row); });
      EXPECT_EQ(got[place], is_held ? row : -1);
    }
  }
  const RowRoute whole = plan_row_route(held, needed);
  size_t num_sent = 0;
  for (size_t rank = 0; rank < routes.size(); ++rank) {
    EXPECT_EQ(routes[rank], own_part(whole, static_cast<int64_t>(rank))) << "rank " << rank;
    num_sent += routes[rank].sent.size();
  }
  EXPECT_EQ(num_sent, whole.messages.size());
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

/// Runs of rows, some of which several ranks have: as encoders make them and tensor parallelism copies them.
RowLists lists_of_runs(size_t num_ranks, int64_t num_rows, std::mt19937_64& random) {
  RowLists lists(num_ranks);
  const size_t num_copies = 1 + random() % 3;
  for (int64_t row = 0; row < num_rows;) {
    const int64_t end = std::min(num_rows, row + 1 + static_cast<int64_t>(random() % 9));
    const size_t first = random() % num_ranks;
    for (size_t copy = 0; copy < std::min(num_copies, num_ranks); ++copy) {
      for (int64_t each = row; each < end; ++each) lists[(first + copy) % num_ranks].push_back(each);
    }
    row = end;
  }
  return lists;
}

TEST(OwnRoute, EveryRankPlansItsPartOfTheWhole) {
  for (uint64_t seed = 1; seed <= draws(uint64_t{400}); ++seed) {
    std::mt19937_64 random(seed);
    const size_t num_ranks = 1 + random() % 9;
    const auto num_rows = static_cast<int64_t>(random() % 60);
    const auto draw = [&] {
      return random() % 2 == 0 ? random_lists(num_ranks, num_rows, random() % 101, random)
                               : lists_of_runs(num_ranks, num_rows, random);
    };
    const RowLists held = draw(), needed = draw();
    SCOPED_TRACE(seed);
    expect_right(held, needed);
    if (testing::Test::HasFailure()) return;
  }
}

List count_up(int64_t begin, int64_t end) {
  List rows(static_cast<size_t>(end - begin));
  std::iota(rows.begin(), rows.end(), begin);
  return rows;
}

TEST(OwnRoute, CopiesShareTheLoadInWholePieces) {
  const List all = count_up(0, 12);
  const RowLists held = {all, all, all, {}, {}}, needed = {{}, {}, {}, all, all};
  for (int64_t rank = 0; rank < 3; ++rank) {
    const std::vector<Range> third = {{4 * rank, 4 * rank + 4}};
    EXPECT_EQ(plan_own_route(held, needed, rank).sent, (std::vector<OwnMessage>{{3, third}, {4, third}}));
  }
}

TEST(OwnRoute, WhoMustSendRowsThatOnlyItHasSendsFewerOfTheOthers) {
  // Rank 0 alone has rows 0 to 5, ranks 0, 1 and 2 have rows 6 to 14.
  const List shared = count_up(6, 15);
  const std::vector<OwnRoute> routes = all_routes({count_up(0, 15), shared, shared, {}}, {{}, {}, {}, count_up(0, 15)});
  for (size_t rank = 0; rank < 3; ++rank) EXPECT_EQ(row_traffic(routes[rank]).sent, rank == 0 ? 6 : rank == 1 ? 5 : 4);
  EXPECT_EQ(row_traffic(routes[3]), (Traffic{.sent = 0, .received = 15}));
}

TEST(OwnRoute, LoadsOfCopiesDifferByOneAtMost) {
  for (uint64_t seed = 1; seed <= 50; ++seed) {
    std::mt19937_64 random(seed);
    const size_t num_copies = 1 + random() % 5;
    const auto num_rows = static_cast<int64_t>(random() % 60);
    RowLists needed = random_lists(num_copies + 3, num_rows, 40, random), held(num_copies + 3);
    for (size_t rank = 0; rank < num_copies; ++rank) {
      held[rank] = count_up(0, num_rows);
      needed[rank].clear();
    }
    List loads;
    for (size_t rank = 0; rank < num_copies; ++rank)
      loads.push_back(row_traffic(plan_own_route(held, needed, static_cast<int64_t>(rank))).sent);
    const auto [least, most] = std::minmax_element(loads.begin(), loads.end());
    EXPECT_LE(*most - *least, 1);
  }
}

TEST(OwnRoute, ListsThatMakeNoSenseAreRefused) {
  EXPECT_ANY_THROW(plan_own_route({{1, 2, 1}, {}}, {{}, {1}}, 0));
  EXPECT_ANY_THROW(plan_own_route({{-1}, {}}, {{}, {}}, 0));
  EXPECT_ANY_THROW(plan_own_route({{}, {}}, RowLists{{}}, 0));
}

}  // namespace
}  // namespace weft
