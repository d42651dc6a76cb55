#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "weft/mesh/traffic.h"

namespace weft {

/// What ranks of a group do with each other.
enum class OperationKind : uint8_t {
  kAllReduce,      ///< everyone gets the reduction of all inputs
  kAllGather,      ///< everyone gets all inputs, in rank order
  kReduceScatter,  ///< rank r gets part r of the reduction of all inputs
  kAllToAll,       ///< rank r gets part r of every input, in rank order
  kBroadcast,      ///< everyone gets the root's buffer
  kSend,
  kRecv,
  kBarrier,  ///< ends when everyone has come to it
};
inline constexpr size_t kNumOperationKinds = 8;

/// "all_reduce".
std::string_view name_of(OperationKind kind);

/// How often one rank did an operation, and the bytes that it sent and received by that.
struct OperationCount {
  int64_t calls = 0;
  Traffic bytes;

  OperationCount& operator+=(const OperationCount& other);
  bool operator==(const OperationCount&) const = default;
};

/// One operation of one rank in a group.
struct GroupCall {
  std::string group;
  std::vector<int64_t> ranks;  ///< as the world numbers them, in group order
  OperationKind kind = OperationKind::kAllReduce;
  Traffic bytes;

  bool operator==(const GroupCall&) const = default;
};
/// "tp of 0 1: all_gather, sent 512, received 512".
std::string text(const GroupCall& call);

/// What one rank of a group did in it.
struct GroupTraffic {
  std::string name;
  std::vector<int64_t> ranks;  ///< as the world numbers them, in group order
  std::array<OperationCount, kNumOperationKinds> operations;

  void add(OperationKind kind, const OperationCount& count) { operations[static_cast<size_t>(kind)] += count; }
  bool operator==(const GroupTraffic&) const = default;
};

/// Several groups, each of name and ranks once, in the order of their first mention.
class TrafficList {
 public:
  GroupTraffic& of(std::string_view name, const std::vector<int64_t>& ranks);
  const std::vector<GroupTraffic>& groups() const { return groups_; }

 private:
  std::vector<GroupTraffic> groups_;
};

/// What was done since `before`, by groups in which something was done at all; groups of one rank, which have nobody to
/// talk to, left out. By name, then ranks.
std::vector<GroupTraffic> traffic_since(const TrafficList& before, const TrafficList& now);

/// A line an operation: "tp of 0 1: all_gather 4 times, sent 512, received 512".
std::string text(const std::vector<GroupTraffic>& groups);

}  // namespace weft
