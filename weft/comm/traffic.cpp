#include "weft/comm/traffic.h"

#include "weft/mesh/traffic.h"

namespace weft {
namespace {

Traffic elements_of(const Operation& op, int64_t rank, int64_t size) {
  const int64_t next = (rank + 1) % size, previous = (rank + size - 1) % size;
  switch (op.kind) {
    case OperationKind::kAllReduce:
      return all_reduce_traffic(op.in.count, size, rank);
    case OperationKind::kAllGather:
      return gather_traffic(op.out.count, op.in.count, part_of(op.out.count, op.out_counts, next, size).size);
    case OperationKind::kReduceScatter:
      return scatter_traffic(op.in.count, op.out.count, part_of(op.in.count, op.in_counts, previous, size).size);
    case OperationKind::kAllToAll:
      return {.sent = op.in.count - part_of(op.in.count, op.in_counts, rank, size).size,
              .received = op.out.count - part_of(op.out.count, op.out_counts, rank, size).size};
    case OperationKind::kBroadcast:
      return {.sent = next != op.peer ? op.out.count : 0, .received = rank != op.peer ? op.out.count : 0};
    case OperationKind::kSend:
      return {.sent = op.peer != rank ? op.in.count : 0};
    case OperationKind::kRecv:
      return {.received = op.peer != rank ? op.out.count : 0};
    case OperationKind::kBarrier:
      break;
  }
  return {};
}

}  // namespace

Traffic traffic_of(const Operation& operation, int64_t rank, int64_t size) {
  if (size == 1) return {};
  return elements_of(operation, rank, size).in_bytes(bytes_per_element(operation.type()));
}

std::vector<SentBytes> sent_by_receiver(const Operation& op, int64_t rank, int64_t size) {
  std::vector<SentBytes> sent;
  if (op.kind == OperationKind::kAllToAll) {
    for (int64_t r = 0; r < size; ++r) {
      const int64_t count = part_of(op.in.count, op.in_counts, r, size).size;
      if (r != rank && count > 0) sent.push_back({r, count * bytes_per_element(op.in.type)});
    }
    return sent;
  }
  const int64_t bytes = traffic_of(op, rank, size).sent;
  if (bytes > 0) sent.push_back({op.kind == OperationKind::kSend ? op.peer : (rank + 1) % size, bytes});
  return sent;
}

}  // namespace weft
