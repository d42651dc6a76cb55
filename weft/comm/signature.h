#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "weft/comm/operation.h"

namespace weft {

/// What must be the same on all ranks of a group that meet in one operation. Plain numbers, so that processes can
/// exchange it as bytes.
struct Signature {
  OperationKind kind = OperationKind::kBarrier;
  Reduction reduction = Reduction::kSum;
  DataType type = DataType::kFp32;
  int32_t padding = 0;
  int64_t count = 0;         ///< elements of the whole; 0 for an all-to-all, where it differs between ranks
  int64_t peer = -1;         ///< of a broadcast, send or recv
  uint64_t counts_hash = 0;  ///< of all parts, for gathers and scatters

  bool operator==(const Signature&) const = default;
};

Signature signature_of(const Operation& operation, int64_t size);

/// "all_reduce of 1024 fp32 (sum)".
std::string text(const Signature& signature);

/// How ranks that met in a collective disagree, the first pair of them; `ranks` are their numbers in the world.
std::optional<std::string> find_disagreement(std::span<const Signature> by_rank, std::span<const int64_t> ranks);

/// How a rank's parts of an all-to-all disagree with another's: what the sender sends and the receiver expects.
std::optional<std::string> find_disagreement(int64_t sender, int64_t num_sent, int64_t receiver, int64_t num_expected);

/// How a send and the recv that it met disagree.
std::optional<std::string> find_disagreement(const Signature& send, int64_t sender, const Signature& recv,
                                             int64_t receiver);

}  // namespace weft
