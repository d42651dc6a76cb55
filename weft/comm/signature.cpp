#include "weft/comm/signature.h"

#include <fmt/format.h>

namespace weft {
namespace {

uint64_t mix(uint64_t hash, int64_t value) {
  hash ^= static_cast<uint64_t>(value) + 0x9e3779b97f4a7c15u + (hash << 6) + (hash >> 2);
  return hash * 0xff51afd7ed558ccdu;
}

uint64_t hash_of(int64_t count, const std::vector<int64_t>& counts, int64_t size) {
  uint64_t hash = 0;
  for (int64_t r = 0; r < size; ++r) hash = mix(hash, counts.empty() ? count / size : counts[static_cast<size_t>(r)]);
  return hash;
}

}  // namespace

Signature signature_of(const Operation& op, int64_t size) {
  Signature signature{.kind = op.kind};
  switch (op.kind) {
    case OperationKind::kAllReduce:
      signature.count = op.in.count;
      signature.type = op.in.type;
      signature.reduction = op.reduction;
      break;
    case OperationKind::kAllGather:
      signature.count = op.out.count;
      signature.type = op.in.type;
      signature.counts_hash = hash_of(op.out.count, op.out_counts, size);
      break;
    case OperationKind::kReduceScatter:
      signature.count = op.in.count;
      signature.type = op.in.type;
      signature.reduction = op.reduction;
      signature.counts_hash = hash_of(op.in.count, op.in_counts, size);
      break;
    case OperationKind::kAllToAll:
      signature.type = op.in.type;
      break;
    case OperationKind::kSend:
      signature.count = op.in.count;
      signature.type = op.in.type;
      signature.peer = op.peer;
      break;
    case OperationKind::kBroadcast:
    case OperationKind::kRecv:
      signature.count = op.out.count;
      signature.type = op.out.type;
      signature.peer = op.peer;
      break;
    case OperationKind::kBarrier:
      break;
  }
  return signature;
}

std::string text(const Signature& signature) {
  const auto kind = name_of(signature.kind);
  const auto what = fmt::format("{} of {} {}", kind, signature.count, name_of(signature.type));
  switch (signature.kind) {
    case OperationKind::kAllReduce:
    case OperationKind::kReduceScatter:
      return fmt::format("{} ({})", what, name_of(signature.reduction));
    case OperationKind::kAllGather:
      return what;
    case OperationKind::kAllToAll:
      return fmt::format("{} of {}", kind, name_of(signature.type));
    case OperationKind::kBroadcast:
    case OperationKind::kRecv:
      return fmt::format("{} from its rank {}", what, signature.peer);
    case OperationKind::kSend:
      return fmt::format("{} to its rank {}", what, signature.peer);
    case OperationKind::kBarrier:
      break;
  }
  return std::string(kind);
}

std::optional<std::string> find_disagreement(std::span<const Signature> by_rank, std::span<const int64_t> ranks) {
  for (size_t r = 1; r < by_rank.size(); ++r) {
    if (by_rank[r] == by_rank[0]) continue;
    const std::string first = text(by_rank[0]), other = text(by_rank[r]);
    const char* parts = first == other ? ", with other part sizes" : "";
    return fmt::format("rank {} asks for {}, rank {} for {}{}", ranks[0], first, ranks[r], other, parts);
  }
  return {};
}

std::optional<std::string> find_disagreement(int64_t sender, int64_t num_sent, int64_t receiver, int64_t num_expected) {
  if (num_sent == num_expected) return {};
  return fmt::format("rank {} sends {} elements to rank {}, which expects {}", sender, num_sent, receiver,
                     num_expected);
}

std::optional<std::string> find_disagreement(const Signature& send, int64_t sender, const Signature& recv,
                                             int64_t receiver) {
  if (send.count == recv.count && send.type == recv.type) return {};
  return fmt::format("rank {} sends {} {} to rank {}, which expects {} {}", sender, send.count, name_of(send.type),
                     receiver, recv.count, name_of(recv.type));
}

}  // namespace weft
