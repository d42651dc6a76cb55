#pragma once

#include <algorithm>
#include <string>
#include <vector>

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

/// What one rank does in its groups, in order. A group of one does nothing.
class CallList {
 public:
  /// Elements have so many bytes.
  void add(const RankGroup& group, OperationKind kind, const Traffic& elements, int64_t element_bytes) {
    if (group.size() == 1) return;
    calls_.push_back(
        {.group = group.name, .ranks = group.ranks, .kind = kind, .bytes = elements.in_bytes(element_bytes)});
  }
  void all_reduce(const RankGroup& group, int64_t elements, int64_t element_bytes) {
    add(group, OperationKind::kAllReduce, all_reduce_traffic(elements, group.size(), group.rank), element_bytes);
  }
  void send(const RankGroup& group, int64_t elements, int64_t element_bytes) {
    add(group, OperationKind::kSend, {.sent = elements}, element_bytes);
  }
  void receive(const RankGroup& group, int64_t elements, int64_t element_bytes) {
    add(group, OperationKind::kRecv, {.received = elements}, element_bytes);
  }

  const std::vector<GroupCall>& calls() const { return calls_; }

 private:
  std::vector<GroupCall> calls_;
};

}  // namespace weft
