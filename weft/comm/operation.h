#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "weft/comm/buffer.h"
#include "weft/comm/reduce.h"
#include "weft/mesh/group_traffic.h"

namespace weft {

/// Everyone in the group takes part, not just two.
bool is_collective(OperationKind kind);

/// What one rank asks of a group. All ranks of the group ask alike; backends and checks work on this.
struct Operation {
  OperationKind kind = OperationKind::kBarrier;
  Reduction reduction = Reduction::kSum;
  ConstBuffer in;
  Buffer out;
  int64_t peer = -1;  ///< the root of a broadcast, whom a send goes to, or whom a recv comes from
  /// Elements of each rank's part, where parts differ; else empty. Gathers have only out_counts, scatters only
  /// in_counts, and an all-to-all both.
  std::vector<int64_t> in_counts;
  std::vector<int64_t> out_counts;

  DataType type() const { return in.data != nullptr || out.data == nullptr ? in.type : out.type; }
};

/// Part r of `count` elements over `size` ranks: where it begins and how much it is. `counts` as in Operation.
struct PartRange {
  int64_t begin = 0;
  int64_t size = 0;
};
PartRange part_of(int64_t count, const std::vector<int64_t>& counts, int64_t rank, int64_t size);
/// All of them.
std::vector<PartRange> parts_of(int64_t count, const std::vector<int64_t>& counts, int64_t size);

/// What is wrong with an operation on a rank of a group, seen from that rank alone: what it has and what is expected.
std::optional<std::string> find_mistake(const Operation& operation, int64_t rank, int64_t size);

}  // namespace weft
