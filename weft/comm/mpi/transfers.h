#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "weft/comm/mpi/engine.h"
#include "weft/comm/mpi/mpi_tuning.h"
#include "weft/comm/operation.h"
#include "weft/comm/signature.h"

namespace weft {

/// Memory for what is received before it is reduced, kept for the next time. Under the engine's lock.
class MpiScratch {
 public:
  using Block = std::unique_ptr<std::vector<std::byte>>;
  Block take(int64_t num_bytes);
  void give(Block block) { free_.push_back(std::move(block)); }

 private:
  std::vector<Block> free_;
};

/// A group's communicator, and the tags of what is under way on it. Every message of every operation has a tag of its
/// own, so that operations may overlap and get ahead of each other differently on every rank.
struct MpiChannel {
  MPI_Comm comm = MPI_COMM_NULL;
  int rank = 0;
  int size = 1;
  int tags = 1 << 13;  ///< in each of four ranges
  MpiTuning tuning;
  MpiScratch* scratch = nullptr;
  uint64_t next_tag = 0;               ///< of collectives
  std::vector<uint64_t> num_sent;      ///< messages, by receiver
  std::vector<uint64_t> num_received;  ///< by sender
};

/// The tag of a collective's message; those of sends and receives lie above.
inline int collective_tag(uint64_t number, int tags) {
  return static_cast<int>(number % static_cast<uint64_t>(tags));
}

/// One round of a gathering in which everyone gets everyone's block in about log2(size) rounds: in each, a rank has a
/// run of blocks that begins with its own, gives them to `to`, and gets as many `more` from `from`.
struct GatherRound {
  int more = 0;
  int to = 0;
  int from = 0;
};
inline GatherRound gather_round(int rank, int size, int have) {
  return {.more = std::min(have, size - have), .to = (rank - have + size) % size, .from = (rank + have) % size};
}

/// Adds the stages of an operation. Ranks start the collectives of a group in the same order; messages of a pair too.
/// What `is_checked` adds comes first: an exchange of signatures that refuses the operation where ranks disagree.
/// `ranks` are the group's in the world, for the message.
void add_transfers(const std::shared_ptr<MpiStages>& transfers, const Operation& operation, MpiChannel& channel,
                   bool is_checked, const std::vector<int64_t>& ranks);

}  // namespace weft
