#include "weft/mesh/own_route.h"

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>

#include "weft/base/check.h"

namespace weft {
namespace {

constexpr int64_t kNowhere = -1;

using Ranks = std::vector<int64_t>;

/// Consecutive rows that the same ranks hold.
struct HeldRows {
  Range rows;
  size_t holders = 0;            ///< which set
  int64_t own_place = kNowhere;  ///< of the first row on the rank that plans
};

/// Which ranks hold which rows.
class Holders {
 public:
  Holders(std::vector<RowRun> held, int64_t own_rank) {
    std::erase_if(held, [](const RowRun& run) { return run.num_rows == 0; });
    std::sort(held.begin(), held.end(), [](const RowRun& a, const RowRun& b) {
      return std::tie(a.first_row, a.rank) < std::tie(b.first_row, b.rank);
    });
    std::vector<int64_t> cuts;
    cuts.reserve(2 * held.size());
    for (const RowRun& run : held) {
      if (cuts.empty() || cuts.back() != run.first_row) cuts.push_back(run.first_row);
      if (cuts.back() != run.end_row()) cuts.push_back(run.end_row());
    }
    std::sort(cuts.begin(), cuts.end());
    cuts.erase(std::unique(cuts.begin(), cuts.end()), cuts.end());
    std::vector<const RowRun*> open;  // by rank
    Ranks ranks;
    auto next = held.begin();
    for (size_t i = 0; i + 1 < cuts.size(); ++i) {
      const Range rows{cuts[i], cuts[i + 1]};
      bool is_changed = std::erase_if(open, [&](const RowRun* run) { return run->end_row() <= rows.begin; }) > 0;
      for (; next != held.end() && next->first_row == rows.begin; ++next) {
        const auto after = std::upper_bound(open.begin(), open.end(), next->rank,
                                            [](int64_t rank, const RowRun* run) { return rank < run->rank; });
        WEFT_CHECK(after == open.begin() || (*(after - 1))->rank != next->rank, "rank {} holds row {} twice",
                   next->rank, rows.begin);
        open.insert(after, &*next);
        is_changed = true;
      }
      if (open.empty()) continue;
      HeldRows& part = parts_.emplace_back(HeldRows{.rows = rows});
      if (is_changed) {
        ranks.clear();
        for (const RowRun* run : open) ranks.push_back(run->rank);
        part.holders = set_of(ranks);
      } else {
        part.holders = parts_[parts_.size() - 2].holders;
      }
      for (const RowRun* run : open) {
        if (run->rank == own_rank) part.own_place = run->first_place + rows.begin - run->first_row;
      }
    }
  }

  const Ranks& ranks(size_t set) const { return sets_[set]; }
  size_t num_sets() const { return sets_.size(); }

  template <typename Visit>
  void each_part(Range rows, Visit visit) const {
    auto part = std::upper_bound(parts_.begin(), parts_.end(), rows.begin,
                                 [](int64_t row, const HeldRows& held) { return row < held.rows.end; });
    for (; part != parts_.end() && part->rows.begin < rows.end; ++part) visit(*part, intersection(part->rows, rows));
  }

 private:
  size_t set_of(const Ranks& ranks) {
    const auto [found, is_new] = numbers_.try_emplace(ranks, sets_.size());
    if (is_new) sets_.push_back(ranks);
    return found->second;
  }

  std::vector<HeldRows> parts_;
  std::vector<Ranks> sets_;
  std::map<Ranks, size_t> numbers_;
};

/// Rows of a message while it is put together.
struct Piece {
  int64_t peer = 0;
  int64_t needed_place = 0;  ///< on the rank that receives
  int64_t own_place = 0;     ///< on the rank that plans
  int64_t num_rows = 0;
};

/// Rows that one rank lacks and any of some others could send.
struct Demand {
  int64_t to = 0;
  size_t holders = 0;
  int64_t num_rows = 0;
  std::vector<Piece> pieces;  ///< where the rank that plans receives them or may send them
};

/// Deals demands out to those that could send, so that the most loaded have as little as can be.
class EvenLoads {
 public:
  explicit EvenLoads(int64_t num_ranks) : loads_(static_cast<size_t>(num_ranks), 0) {}

  /// The share of each sender, in order.
  const std::vector<int64_t>& deal(const Ranks& senders, int64_t count) {
    shares_.assign(senders.size(), 0);
    if (senders.size() == 1) {
      load(senders.front()) += count;
      shares_.front() = count;
      return shares_;
    }
    order_.clear();
    for (size_t i = 0; i < senders.size(); ++i) order_.emplace_back(load(senders[i]), i);
    if (!std::is_sorted(order_.begin(), order_.end())) std::sort(order_.begin(), order_.end());
    size_t num_filled = 0;  // the least loaded, which reach one level
    int64_t sum = 0;        // of their loads
    for (; num_filled < order_.size(); ++num_filled) {
      const int64_t next = order_[num_filled].first;
      if (num_filled > 0 && next * static_cast<int64_t>(num_filled) - sum >= count) break;
      sum += next;
    }
    const auto filled = static_cast<int64_t>(num_filled);
    const int64_t level = (sum + count) / filled;
    const int64_t left = (sum + count) % filled;
    for (int64_t i = 0; i < filled; ++i) {
      const auto [before, sender] = order_[static_cast<size_t>(i)];
      shares_[sender] = level + (i < left ? 1 : 0) - before;
      load(senders[sender]) += shares_[sender];
    }
    return shares_;
  }

 private:
  int64_t& load(int64_t rank) { return loads_[static_cast<size_t>(rank)]; }

  std::vector<int64_t> loads_;
  std::vector<int64_t> shares_;
  std::vector<std::pair<int64_t, size_t>> order_;
};

void add_places(std::vector<Range>& places, int64_t begin, int64_t count) {
  if (!places.empty() && places.back().end == begin)
    places.back().end += count;
  else
    places.push_back({begin, begin + count});
}

std::vector<OwnMessage> messages_of(std::vector<Piece> pieces) {
  std::sort(pieces.begin(), pieces.end(), [](const Piece& a, const Piece& b) {
    return std::tie(a.peer, a.needed_place) < std::tie(b.peer, b.needed_place);
  });
  std::vector<OwnMessage> messages;
  for (const Piece& piece : pieces) {
    if (messages.empty() || messages.back().peer != piece.peer) messages.push_back({.peer = piece.peer, .places = {}});
    add_places(messages.back().places, piece.own_place, piece.num_rows);
  }
  return messages;
}

/// The pieces of a demand that have its rows `begin` to `end`.
template <typename Visit>
void each_piece(const Demand& demand, Range rows, Visit visit) {
  int64_t begin = 0;
  for (const Piece& piece : demand.pieces) {
    const Range part = intersection({begin, begin + piece.num_rows}, rows);
    if (!part.empty()) visit(piece, part.begin - begin, part.size());
    begin += piece.num_rows;
  }
}

std::vector<Demand> list_demands(const Holders& holders, const std::vector<RowRun>& needed, int64_t own_rank,
                                 OwnRoute& route) {
  std::vector<Demand> demands;
  std::vector<size_t> last_demand(holders.num_sets(), 0);  // from 1 on
  for (const RowRun& run : needed) {
    holders.each_part({run.first_row, run.end_row()}, [&](const HeldRows& part, Range rows) {
      const Ranks& senders = holders.ranks(part.holders);
      const int64_t place = run.first_place + rows.begin - run.first_row;
      const int64_t held_place = part.own_place + rows.begin - part.rows.begin;
      if (std::binary_search(senders.begin(), senders.end(), run.rank)) {
        if (run.rank != own_rank) return;
        add_places(route.kept_from, held_place, rows.size());
        add_places(route.kept_to, place, rows.size());
        return;
      }
      size_t& last = last_demand[part.holders];
      if (last == 0 || demands[last - 1].to != run.rank) {
        demands.push_back({.to = run.rank, .holders = part.holders});
        last = demands.size();
      }
      Demand& demand = demands[last - 1];
      demand.num_rows += rows.size();
      const bool may_send = part.own_place != kNowhere;
      if (run.rank == own_rank || may_send)
        demand.pieces.push_back(
            {.needed_place = place, .own_place = run.rank == own_rank ? place : held_place, .num_rows = rows.size()});
    });
  }
  return demands;
}

}  // namespace

OwnRoute plan_own_runs(std::vector<RowRun> held, std::vector<RowRun> needed, int64_t rank) {
  OwnRoute route;
  int64_t num_ranks = rank + 1;
  for (const RowRun& run : held) {
    if (run.rank == rank) route.num_held += run.num_rows;
    num_ranks = std::max(num_ranks, run.rank + 1);
  }
  for (const RowRun& run : needed) {
    if (run.rank == rank) route.num_needed += run.num_rows;
  }
  const auto by_place = [](const RowRun& a, const RowRun& b) {
    return std::tie(a.rank, a.first_place) < std::tie(b.rank, b.first_place);
  };
  if (!std::is_sorted(needed.begin(), needed.end(), by_place)) std::sort(needed.begin(), needed.end(), by_place);
  const Holders holders(std::move(held), rank);
  std::vector<Demand> demands = list_demands(holders, needed, rank, route);
  route.moves_rows = !demands.empty();
  // Those with the least choice first, so that the others can go around them.
  const auto by_choice = [&](const Demand& a, const Demand& b) {
    return holders.ranks(a.holders).size() < holders.ranks(b.holders).size();
  };
  if (!std::is_sorted(demands.begin(), demands.end(), by_choice))
    std::stable_sort(demands.begin(), demands.end(), by_choice);
  EvenLoads loads(num_ranks);
  std::vector<Piece> sent, received;
  for (const Demand& demand : demands) {
    const Ranks& senders = holders.ranks(demand.holders);
    const std::vector<int64_t>& shares = loads.deal(senders, demand.num_rows);
    if (demand.pieces.empty()) continue;
    int64_t begin = 0;
    for (size_t i = 0; i < senders.size(); ++i) {
      const Range rows{begin, begin + shares[i]};
      begin = rows.end;
      if (demand.to != rank && senders[i] != rank) continue;
      each_piece(demand, rows, [&](const Piece& piece, int64_t offset, int64_t count) {
        (demand.to == rank ? received : sent)
            .push_back({.peer = demand.to == rank ? senders[i] : demand.to,
                        .needed_place = piece.needed_place + offset,
                        .own_place = piece.own_place + offset,
                        .num_rows = count});
      });
    }
  }
  route.sent = messages_of(std::move(sent));
  route.received = messages_of(std::move(received));
  return route;
}

void add_runs(std::span<const int64_t> rows, int64_t rank, int64_t first_place, std::vector<RowRun>& runs) {
  for (size_t i = 0; i < rows.size(); ++i) {
    WEFT_CHECK(rows[i] >= 0, "a row has the number {}", rows[i]);
    if (i > 0 && rows[i] == rows[i - 1] + 1)
      ++runs.back().num_rows;
    else
      runs.push_back(
          {.rank = rank, .first_row = rows[i], .first_place = first_place + static_cast<int64_t>(i), .num_rows = 1});
  }
}

OwnRoute plan_own_route(const RowLists& held, const RowLists& needed, int64_t rank) {
  WEFT_CHECK(needed.size() == held.size(), "{} ranks hold rows, {} need some", held.size(), needed.size());
  const auto runs_of = [](const RowLists& lists) {
    std::vector<RowRun> runs;
    for (size_t i = 0; i < lists.size(); ++i) add_runs(lists[i], static_cast<int64_t>(i), 0, runs);
    return runs;
  };
  return plan_own_runs(runs_of(held), runs_of(needed), rank);
}

OwnRoute sending_part(const OwnRoute& route) {
  return {.sent = route.sent, .num_held = route.num_held, .moves_rows = route.moves_rows};
}

OwnRoute receiving_part(const OwnRoute& route) {
  OwnRoute part = route;
  part.sent.clear();
  if (part.kept_from.empty()) part.num_held = 0;
  return part;
}

Traffic row_traffic(const OwnRoute& route) {
  Traffic traffic;
  for (const OwnMessage& message : route.sent) traffic.sent += message.num_rows();
  for (const OwnMessage& message : route.received) traffic.received += message.num_rows();
  return traffic;
}

}  // namespace weft
