#pragma once

#include <cstdint>
#include <optional>
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
/// The same at the end of a line. Every operation of a process is written down, so this is quick.
void append_text(std::string& line, const Signature& signature);
void append_text(std::string& line, int64_t number);

/// How two ranks that met in a collective disagree; ranks are named by their numbers in the world, here and below.
std::optional<std::string> find_disagreement(const Signature& one, int64_t one_rank, const Signature& other,
                                             int64_t other_rank);

/// How a part of an all-to-all does not match: what the sender sends and the receiver expects.
std::optional<std::string> find_mismatch(int64_t sender, int64_t num_sent, int64_t receiver, int64_t num_expected);

/// How a send does not match the recv that it met.
std::optional<std::string> find_mismatch(const Signature& send, int64_t sender, const Signature& recv,
                                         int64_t receiver);

}  // namespace weft
