#pragma once

#include "weft/meaning/rank_groups.h"
#include "weft/mesh/group_traffic.h"

namespace weft {

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
