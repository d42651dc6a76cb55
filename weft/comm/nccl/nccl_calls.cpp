#include "weft/comm/nccl/nccl_calls.h"

#include <functional>

namespace weft {
namespace {

/// Calls that begin together, so that none waits for another.
void call_together(const NcclLibrary& nccl, const std::function<NcclStatus()>& calls) {
  nccl.check(nccl.ncclGroupStart(), "ncclGroupStart");
  const NcclStatus first = calls();
  const NcclStatus end = nccl.ncclGroupEnd();
  nccl.check(first, "a call of NCCL");
  nccl.check(end, "ncclGroupEnd");
}

/// Everyone sends everyone its part.
void exchange(const NcclLibrary& nccl, const Operation& op, int64_t rank, int64_t size, NcclComm comm, void* stream) {
  const bool gathers = op.kind == OperationKind::kAllGather;
  const auto out_parts = parts_of(op.out.count, op.out_counts, size);
  const auto in_parts = gathers ? std::vector<PartRange>(static_cast<size_t>(size), {0, op.in.count})
                                : parts_of(op.in.count, op.in_counts, size);
  const int type = nccl_type(op.in.type);
  call_together(nccl, [&] {
    NcclStatus status = 0;
    const auto note = [&](NcclStatus one) {
      if (status == 0) status = one;
    };
    for (int64_t r = 0; r < size; ++r) {
      const PartRange sent = in_parts[static_cast<size_t>(r)], received = out_parts[static_cast<size_t>(r)];
      const void* from = op.in.part(sent.begin, sent.size).data;
      void* to = op.out.part(received.begin, received.size).data;
      if (r == rank && from == to) continue;
      const int peer = static_cast<int>(r);
      if (sent.size > 0) note(nccl.ncclSend(from, static_cast<size_t>(sent.size), type, peer, comm, stream));
      if (received.size > 0) note(nccl.ncclRecv(to, static_cast<size_t>(received.size), type, peer, comm, stream));
    }
    return status;
  });
}

/// Part r is reduced to rank r, for parts that differ.
void reduce_parts(const NcclLibrary& nccl, const Operation& op, int64_t size, NcclComm comm, void* stream) {
  const auto parts = parts_of(op.in.count, op.in_counts, size);
  call_together(nccl, [&] {
    NcclStatus status = 0;
    for (int64_t r = 0; r < size; ++r) {
      const PartRange part = parts[static_cast<size_t>(r)];
      if (part.size == 0) continue;
      const NcclStatus one = nccl.ncclReduce(
          op.in.part(part.begin, part.size).data, op.out.data, static_cast<size_t>(part.size), nccl_type(op.in.type),
          nccl_reduction(op.reduction, op.in.type), static_cast<int>(r), comm, stream);
      if (status == 0) status = one;
    }
    return status;
  });
}

}  // namespace

void call_collective(const NcclLibrary& nccl, const Operation& op, int64_t rank, int64_t size, NcclComm comm,
                     void* stream) {
  // The average of one is asked for as a sum: NCCL's own left 70,001 fp32 elements wrong on a communicator of one.
  const bool is_alone = size == 1 && op.reduction == Reduction::kAvg;
  const int type = nccl_type(op.type());
  const int reduction = nccl_reduction(is_alone ? Reduction::kSum : op.reduction, op.type());
  const auto in_count = static_cast<size_t>(op.in.count), out_count = static_cast<size_t>(op.out.count);
  switch (op.kind) {
    case OperationKind::kBarrier:
    case OperationKind::kAllReduce:
      if (out_count == 0) return;
      return nccl.check(nccl.ncclAllReduce(op.in.data, op.out.data, out_count, type, reduction, comm, stream),
                        "ncclAllReduce");
    case OperationKind::kAllGather:
      if (!op.out_counts.empty()) return exchange(nccl, op, rank, size, comm, stream);
      if (in_count == 0) return;
      return nccl.check(nccl.ncclAllGather(op.in.data, op.out.data, in_count, type, comm, stream), "ncclAllGather");
    case OperationKind::kReduceScatter:
      if (!op.in_counts.empty()) return reduce_parts(nccl, op, size, comm, stream);
      if (out_count == 0) return;
      return nccl.check(nccl.ncclReduceScatter(op.in.data, op.out.data, out_count, type, reduction, comm, stream),
                        "ncclReduceScatter");
    case OperationKind::kAllToAll:
      return exchange(nccl, op, rank, size, comm, stream);
    case OperationKind::kBroadcast:
      if (out_count == 0) return;
      return nccl.check(
          nccl.ncclBroadcast(op.in.data, op.out.data, out_count, type, static_cast<int>(op.peer), comm, stream),
          "ncclBroadcast");
    case OperationKind::kSend:
    case OperationKind::kRecv:
      break;
  }
  call_message(nccl, op, comm, stream);
}

void call_message(const NcclLibrary& nccl, const Operation& op, NcclComm comm, void* stream) {
  constexpr int kSender = 0, kReceiver = 1;
  if (op.kind == OperationKind::kSend && op.in.count > 0) {
    nccl.check(
        nccl.ncclSend(op.in.data, static_cast<size_t>(op.in.count), nccl_type(op.in.type), kReceiver, comm, stream),
        "ncclSend");
  }
  if (op.kind == OperationKind::kRecv && op.out.count > 0) {
    nccl.check(
        nccl.ncclRecv(op.out.data, static_cast<size_t>(op.out.count), nccl_type(op.out.type), kSender, comm, stream),
        "ncclRecv");
  }
}

}  // namespace weft
