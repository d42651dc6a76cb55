#include "weft/mesh/group_traffic.h"

#include <algorithm>
#include <tuple>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace weft {

std::string_view name_of(OperationKind kind) {
  constexpr std::array<std::string_view, kNumOperationKinds> kNames = {
      "all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast", "send", "recv", "barrier"};
  return kNames[static_cast<size_t>(kind)];
}

OperationCount& OperationCount::operator+=(const OperationCount& other) {
  calls += other.calls;
  bytes += other.bytes;
  return *this;
}

std::string text(const GroupCall& call) {
  return fmt::format("{} of {}: {}, sent {}, received {}", call.group, fmt::join(call.ranks, " "), name_of(call.kind),
                     call.bytes.sent, call.bytes.received);
}

GroupTraffic& TrafficList::of(std::string_view name, const std::vector<int64_t>& ranks) {
  const auto found = std::find_if(groups_.begin(), groups_.end(), [&](const GroupTraffic& group) {
    return group.name == name && group.ranks == ranks;
  });
  if (found != groups_.end()) return *found;
  return groups_.emplace_back(GroupTraffic{.name = std::string(name), .ranks = ranks, .operations = {}});
}

std::vector<GroupTraffic> traffic_since(const TrafficList& before, const TrafficList& now) {
  TrafficList base = before;
  std::vector<GroupTraffic> done;
  for (GroupTraffic group : now.groups()) {
    if (group.ranks.size() == 1) continue;
    bool is_used = false;
    const GroupTraffic& earlier = base.of(group.name, group.ranks);
    for (size_t kind = 0; kind < kNumOperationKinds; ++kind) {
      OperationCount& count = group.operations[kind];
      const OperationCount& had = earlier.operations[kind];
      count.calls -= had.calls;
      count.bytes.sent -= had.bytes.sent;
      count.bytes.received -= had.bytes.received;
      is_used |= count.calls != 0;
    }
    if (is_used) done.push_back(std::move(group));
  }
  std::sort(done.begin(), done.end(), [](const GroupTraffic& a, const GroupTraffic& b) {
    return std::tie(a.name, a.ranks) < std::tie(b.name, b.ranks);
  });
  return done;
}

std::string text(const std::vector<GroupTraffic>& groups) {
  std::string text;
  for (const GroupTraffic& group : groups) {
    for (size_t kind = 0; kind < kNumOperationKinds; ++kind) {
      const OperationCount& count = group.operations[kind];
      if (count.calls == 0) continue;
      text +=
          fmt::format("{} of {}: {} {} times, sent {}, received {}\n", group.name, fmt::join(group.ranks, " "),
                      name_of(static_cast<OperationKind>(kind)), count.calls, count.bytes.sent, count.bytes.received);
    }
  }
  return text;
}

}  // namespace weft
