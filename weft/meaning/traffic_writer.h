#pragma once

#include <algorithm>

#include "weft/base/check.h"
#include "weft/mesh/group_traffic.h"

namespace weft {

/// Ranks that talk to each other, seen from one of them, by the name that training gives them (group_names.h).
struct RankGroup {
  std::string name;
  std::vector<int64_t> ranks;
  int64_t rank = 0;  ///< its place among them

  int64_t size() const { return static_cast<int64_t>(ranks.size()); }
};

inline RankGroup named_group(std::string name, std::vector<int64_t> ranks, int64_t rank) {
  const auto found = std::find(ranks.begin(), ranks.end(), rank);
  WEFT_CHECK(found != ranks.end(), "rank {} is not in group '{}'", rank, name);
  const int64_t place = found - ranks.begin();
  return {.name = std::move(name), .ranks = std::move(ranks), .rank = place};
}

/// Writes down what one rank does in its groups.
class TrafficWriter {
 public:
  /// What one operation moves, in elements of so many bytes, and how often it is done.
  void add(const RankGroup& group, OperationKind kind, const Traffic& elements, int64_t element_bytes,
           int64_t times = 1) {
    add_calls(group, kind, elements.in_bytes(element_bytes * times), times);
  }
  /// So many calls that together move so many bytes.
  void add_calls(const RankGroup& group, OperationKind kind, const Traffic& bytes, int64_t calls) {
    if (group.size() == 1 || calls == 0) return;
    list_.of(group.name, group.ranks).add(kind, {.calls = calls, .bytes = bytes});
  }
  void all_reduce(const RankGroup& group, int64_t elements, int64_t element_bytes, int64_t times = 1) {
    add(group, OperationKind::kAllReduce, all_reduce_traffic(elements, group.size(), group.rank), element_bytes, times);
  }
  void send(const RankGroup& group, int64_t elements, int64_t element_bytes, int64_t times = 1) {
    add(group, OperationKind::kSend, {.sent = elements}, element_bytes, times);
  }
  void receive(const RankGroup& group, int64_t elements, int64_t element_bytes, int64_t times = 1) {
    add(group, OperationKind::kRecv, {.received = elements}, element_bytes, times);
  }

  const TrafficList& list() const { return list_; }

 private:
  TrafficList list_;
};

}  // namespace weft
