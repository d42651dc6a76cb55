#include "tests/support/mesh/row_route.h"

#include <algorithm>
#include <map>
#include <span>
#include <tuple>
#include <utility>

#include "weft/base/check.h"

namespace weft {
namespace {

constexpr int64_t kNowhere = -1;

/// Which ranks hold each row. Rows that the same ranks hold have the same set.
class HolderSets {
 public:
  HolderSets(const RowLists& held, size_t num_rows) : sets_{{}}, set_of_(num_rows) {
    std::vector<size_t> child;  // of each set, with the rank that is being added
    for (size_t rank = 0; rank < held.size(); ++rank) {
      child.assign(sets_.size(), 0);
      for (const int64_t row : held[rank]) {
        size_t& set = set_of_[static_cast<size_t>(row)];
        WEFT_CHECK(set < child.size(), "rank {} holds row {} twice", rank, row);
        if (child[set] == 0) {
          child[set] = sets_.size();
          sets_.push_back({.parent = set, .rank = static_cast<int64_t>(rank)});
        }
        set = child[set];
      }
    }
  }

  size_t size() const { return sets_.size(); }
  size_t set_of(int64_t row) const { return set_of_[static_cast<size_t>(row)]; }
  /// In order.
  std::vector<int64_t> ranks(size_t set) const {
    std::vector<int64_t> ranks;
    for (; set != 0; set = sets_[set].parent) ranks.push_back(sets_[set].rank);
    std::reverse(ranks.begin(), ranks.end());
    return ranks;
  }

 private:
  /// The parent's ranks and, after them, one more. The first set is empty.
  struct Set {
    size_t parent = 0;
    int64_t rank = kNowhere;
  };

  std::vector<Set> sets_;
  std::vector<size_t> set_of_;
};

/// Where each row stands in one rank's list.
class PlaceTable {
 public:
  explicit PlaceTable(size_t num_rows) : place_(num_rows, kNowhere) {}

  void load(const std::vector<int64_t>& list) {
    for (const int64_t row : loaded_) place_[static_cast<size_t>(row)] = kNowhere;
    loaded_ = list;
    for (size_t place = 0; place < list.size(); ++place)
      place_[static_cast<size_t>(list[place])] = static_cast<int64_t>(place);
  }
  int64_t operator[](int64_t row) const { return place_[static_cast<size_t>(row)]; }

 private:
  std::vector<int64_t> place_;
  std::span<const int64_t> loaded_;
};

/// Rows that one rank lacks and any of some others could send.
struct Demand {
  int64_t to = 0;
  std::vector<int64_t> senders;
  std::vector<int64_t> places;  ///< of the receiver, ascending
};

/// What of `count` rows each sender gets so that, with their loads so far, the most loaded have as little as can be.
std::vector<int64_t> even_shares(const std::vector<int64_t>& senders, const std::vector<int64_t>& loads,
                                 int64_t count) {
  const auto load = [&](size_t i) { return loads[static_cast<size_t>(senders[i])]; };
  std::vector<size_t> order(senders.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return load(a) < load(b); });
  size_t num_filled = 0;  // the least loaded, which reach one level
  int64_t sum = 0;        // of their loads
  while (num_filled < order.size()) {
    const int64_t next = load(order[num_filled]);
    if (num_filled > 0 && next * static_cast<int64_t>(num_filled) - sum >= count) break;
    sum += next;
    ++num_filled;
  }
  const auto filled = static_cast<int64_t>(num_filled);
  const int64_t level = (sum + count) / filled;
  const int64_t left = (sum + count) % filled;
  std::vector<int64_t> shares(senders.size(), 0);
  for (size_t i = 0; i < num_filled; ++i)
    shares[order[i]] = level + (static_cast<int64_t>(i) < left ? 1 : 0) - load(order[i]);
  return shares;
}

using Places = std::vector<int64_t>;

/// The receiver's places of every message.
std::map<std::pair<int64_t, int64_t>, Places> choose_senders(std::vector<Demand> demands, size_t num_ranks) {
  // Those with the least choice first, so that the others can go around them.
  std::stable_sort(demands.begin(), demands.end(),
                   [](const Demand& a, const Demand& b) { return a.senders.size() < b.senders.size(); });
  std::map<std::pair<int64_t, int64_t>, Places> messages;
  std::vector<int64_t> loads(num_ranks, 0);
  for (const Demand& demand : demands) {
    const std::vector<int64_t> shares = even_shares(demand.senders, loads, std::ssize(demand.places));
    auto place = demand.places.begin();
    for (size_t i = 0; i < shares.size(); ++i) {
      if (shares[i] == 0) continue;
      loads[static_cast<size_t>(demand.senders[i])] += shares[i];
      Places& all = messages[{demand.senders[i], demand.to}];
      all.insert(all.end(), place, place + shares[i]);
      place += shares[i];
    }
  }
  for (auto& [pair, places] : messages) std::sort(places.begin(), places.end());
  return messages;
}

/// One more than the largest row.
size_t count_rows(const RowLists& held, const RowLists& needed) {
  int64_t largest = -1;
  for (const RowLists* lists : {&held, &needed}) {
    for (const std::vector<int64_t>& list : *lists) {
      for (const int64_t row : list) {
        WEFT_CHECK(row >= 0, "a row has the number {}", row);
        largest = std::max(largest, row);
      }
    }
  }
  return static_cast<size_t>(largest + 1);
}

}  // namespace

RowRoute plan_row_route(const RowLists& held, const RowLists& needed) {
  const size_t num_ranks = held.size();
  WEFT_CHECK(needed.size() == num_ranks, "{} ranks hold rows, {} need some", num_ranks, needed.size());
  const size_t num_rows = count_rows(held, needed);
  const HolderSets holders(held, num_rows);
  PlaceTable place_of(num_rows);

  RowRoute route;
  std::vector<Demand> demands;
  std::vector<std::pair<size_t, size_t>> last_demand(holders.size());  // of each set: by whom (from 1 on), and which
  std::vector<size_t> last_needed(num_rows, 0);                        // by whom, from 1 on
  for (size_t to = 0; to < num_ranks; ++to) {
    route.num_held.push_back(std::ssize(held[to]));
    route.num_needed.push_back(std::ssize(needed[to]));
    place_of.load(held[to]);
    RowMessage kept{.from = static_cast<int64_t>(to), .to = static_cast<int64_t>(to)};
    for (size_t place = 0; place < needed[to].size(); ++place) {
      const int64_t row = needed[to][place];
      WEFT_CHECK(std::exchange(last_needed[static_cast<size_t>(row)], to + 1) != to + 1, "rank {} needs row {} twice",
                 to, row);
      const size_t set = holders.set_of(row);
      if (place_of[row] != kNowhere) {
        kept.sender_places.push_back(place_of[row]);
        kept.receiver_places.push_back(static_cast<int64_t>(place));
      } else if (set != 0) {
        auto& [by_whom, which] = last_demand[set];
        if (by_whom != to + 1) {
          by_whom = to + 1;
          which = demands.size();
          demands.push_back({.to = static_cast<int64_t>(to), .senders = holders.ranks(set), .places = {}});
        }
        demands[which].places.push_back(static_cast<int64_t>(place));
      }
    }
    if (kept.num_rows() > 0) route.kept.push_back(std::move(kept));
  }
  int64_t loaded = kNowhere;
  for (auto& [pair, places] : choose_senders(std::move(demands), num_ranks)) {
    const auto [from, to] = pair;
    if (std::exchange(loaded, from) != from) place_of.load(held[static_cast<size_t>(from)]);
    RowMessage message{.from = from, .to = to, .sender_places = {}, .receiver_places = std::move(places)};
    message.sender_places.reserve(message.receiver_places.size());
    for (const int64_t place : message.receiver_places)
      message.sender_places.push_back(place_of[needed[static_cast<size_t>(to)][static_cast<size_t>(place)]]);
    route.messages.push_back(std::move(message));
  }
  return route;
}

OwnRoute own_part(const RowRoute& route, int64_t rank) {
  const auto runs_of = [](const std::vector<int64_t>& places) {
    std::vector<Range> runs;
    for (const int64_t place : places) {
      if (!runs.empty() && runs.back().end == place)
        ++runs.back().end;
      else
        runs.push_back({place, place + 1});
    }
    return runs;
  };
  OwnRoute own{.num_held = route.num_held[static_cast<size_t>(rank)],
               .num_needed = route.num_needed[static_cast<size_t>(rank)],
               .moves_rows = !route.messages.empty()};
  for (const RowMessage& message : route.messages) {
    if (message.from == rank) own.sent.push_back({message.to, runs_of(message.sender_places)});
    if (message.to == rank) own.received.push_back({message.from, runs_of(message.receiver_places)});
  }
  for (const RowMessage& kept : route.kept) {
    if (kept.from != rank) continue;
    own.kept_from = runs_of(kept.sender_places);
    own.kept_to = runs_of(kept.receiver_places);
  }
  return own;
}

}  // namespace weft
