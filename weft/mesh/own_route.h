#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "weft/mesh/box.h"
#include "weft/mesh/step.h"

namespace weft {

/// Rows by number, from 0 on, one list for each rank of a group, in the order in which the rank keeps them. No list
/// names a row twice.
using RowLists = std::vector<std::vector<int64_t>>;

/// Consecutive rows that a rank of a group keeps one after the other: row `first_row` stands at `first_place`.
struct RowRun {
  int64_t rank = 0;
  int64_t first_row = 0;
  int64_t first_place = 0;
  int64_t num_rows = 0;

  int64_t end_row() const { return first_row + num_rows; }
};

/// Rows between this rank and another, by their places on this one. Both ends list them in the same order.
struct OwnMessage {
  int64_t peer = 0;
  std::vector<Range> places;

  int64_t num_rows() const { return total_size(places); }
  bool operator==(const OwnMessage&) const = default;
};

/// How rows come from the ranks of a group that hold them to those that need them, as far as one rank has to do with
/// it.
struct OwnRoute {
  std::vector<OwnMessage> sent;      ///< by receiver
  std::vector<OwnMessage> received;  ///< by sender; places ascend
  std::vector<Range> kept_from;      ///< what it needs and has itself: where it has it
  std::vector<Range> kept_to;        ///< and where it needs it; these ascend
  int64_t num_held = 0;
  int64_t num_needed = 0;
  bool moves_rows = false;  ///< on any rank

  bool operator==(const OwnRoute&) const = default;
};

/// One rank's part of a route. Every needed row comes exactly once: from the rank that needs it if it holds it, else
/// from one of its holders, among which the load is spread evenly, in pieces that are as long as that allows. A row
/// that nobody holds does not come. All ranks work their parts out by themselves, and these fit together.
///
/// Runs may be in any order. Ranks may be left out that have no part in what decides on this rank's messages: what is
/// needed of the holders of a row decides on who sends it, and nothing else does.
OwnRoute plan_own_runs(std::vector<RowRun> held, std::vector<RowRun> needed, int64_t rank);
/// The same, where all rows of all ranks are listed.
OwnRoute plan_own_route(const RowLists& held, const RowLists& needed, int64_t rank);

/// Adds the runs of consecutive numbers in a list, whose first row is at a place.
void add_runs(std::span<const int64_t> rows, int64_t rank, int64_t first_place, std::vector<RowRun>& runs);

/// What a rank sends of a route, and what it receives or keeps: two routes that are run apart.
OwnRoute sending_part(const OwnRoute& route);
OwnRoute receiving_part(const OwnRoute& route);

/// What the rank sends and receives by messages, in rows.
Traffic row_traffic(const OwnRoute& route);

}  // namespace weft
