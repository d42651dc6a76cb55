#include "weft/comm/signature.h"

#include <charconv>

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

void append_text(std::string& line, int64_t number) {
  char digits[24];
  line.append(digits, std::to_chars(digits, digits + sizeof(digits), number).ptr);
}

void append_text(std::string& line, const Signature& signature) {
  line += name_of(signature.kind);
  if (signature.kind == OperationKind::kBarrier) return;
  line += " of ";
  if (signature.kind != OperationKind::kAllToAll) {
    append_text(line, signature.count);
    line += ' ';
  }
  line += name_of(signature.type);
  switch (signature.kind) {
    case OperationKind::kAllReduce:
    case OperationKind::kReduceScatter:
      line += " (";
      line += name_of(signature.reduction);
      line += ')';
      break;
    case OperationKind::kBroadcast:
    case OperationKind::kRecv:
      line += " from its rank ";
      append_text(line, signature.peer);
      break;
    case OperationKind::kSend:
      line += " to its rank ";
      append_text(line, signature.peer);
      break;
    default:
      break;
  }
}

std::string text(const Signature& signature) {
  std::string line;
  append_text(line, signature);
  return line;
}

std::optional<std::string> find_disagreement(const Signature& one, int64_t one_rank, const Signature& other,
                                             int64_t other_rank) {
  if (one == other) return {};
  const std::string asked = text(one), asked_other = text(other);
  return fmt::format("rank {} asks for {}, rank {} for {}{}", one_rank, asked, other_rank, asked_other,
                     asked == asked_other ? ", with other part sizes" : "");
}

std::optional<std::string> find_mismatch(int64_t sender, int64_t num_sent, int64_t receiver, int64_t num_expected) {
  if (num_sent == num_expected) return {};
  return fmt::format("rank {} sends {} elements to rank {}, which expects {}", sender, num_sent, receiver,
                     num_expected);
}

std::optional<std::string> find_mismatch(const Signature& send, int64_t sender, const Signature& recv,
                                         int64_t receiver) {
  if (send.count == recv.count && send.type == recv.type) return {};
  return fmt::format("rank {} sends {} {} to rank {}, which expects {} {}", sender, send.count, name_of(send.type),
                     receiver, recv.count, name_of(recv.type));
}

}  // namespace weft
