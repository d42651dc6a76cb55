#pragma once

#include <cstdint>
#include <vector>

#include "weft/mesh/own_route.h"

namespace weft {

/// Rows that go from one rank of a group to another. The i-th stands at sender_places[i] of what the sender holds and
/// comes to receiver_places[i] of what the receiver needs; the latter ascend.
struct RowMessage {
  int64_t from = 0;
  int64_t to = 0;
  std::vector<int64_t> sender_places;
  std::vector<int64_t> receiver_places;

  int64_t num_rows() const { return static_cast<int64_t>(sender_places.size()); }

  bool operator==(const RowMessage&) const = default;
};

/// The messages of all ranks of a group, row by row: what the ranks' own routes (own_route.h) must come to together.
struct RowRoute {
  std::vector<RowMessage> messages;  ///< by sender, then receiver; at most one for a pair, none to oneself
  std::vector<RowMessage> kept;      ///< by rank; what a rank needs and has itself
  std::vector<int64_t> num_held;     ///< by rank
  std::vector<int64_t> num_needed;

  int64_t num_ranks() const { return static_cast<int64_t>(num_held.size()); }

  bool operator==(const RowRoute&) const = default;
};

/// Who holds and who needs what, for as many ranks. Planned in one go for all of them, without runs.
RowRoute plan_row_route(const RowLists& held, const RowLists& needed);

/// One rank's part of it.
OwnRoute own_part(const RowRoute& route, int64_t rank);

}  // namespace weft
