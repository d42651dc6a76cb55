#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "weft/mesh/step.h"
#include "weft/mesh/topology.h"

namespace weft {

/// Rows by number, from 0 on, one list for each rank of a group, in the order in which the rank keeps them. No list
/// names a row twice.
using RowLists = std::vector<std::vector<int64_t>>;

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

/// How rows come from the ranks of a group that hold them to those that need them. Every needed row comes exactly once.
struct RowRoute {
  std::vector<RowMessage> messages;  ///< by sender, then receiver; at most one for a pair, none to oneself
  std::vector<RowMessage> kept;      ///< by rank; what a rank needs and has itself
  std::vector<int64_t> num_held;     ///< by rank
  std::vector<int64_t> num_needed;

  int64_t num_ranks() const { return static_cast<int64_t>(num_held.size()); }

  bool operator==(const RowRoute&) const = default;
};

/// Who holds and who needs what, for as many ranks. A needed row comes from the rank that needs it if it has it itself,
/// else from one on its node if a topology is given, and the load is spread evenly among equals, in pieces that are
/// as long as that allows. A row that nobody holds does not come. With a topology, `world_ranks` are the group's ranks
/// as it numbers them. The result depends on the arguments alone.
RowRoute plan_row_route(const RowLists& held, const RowLists& needed, const Topology* topology = nullptr,
                        std::span<const int64_t> world_ranks = {});

/// What a rank of the group sends and receives by messages, in rows.
Traffic row_traffic(const RowRoute& route, int64_t rank);

}  // namespace weft
