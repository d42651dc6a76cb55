#pragma once

#include "weft/comm/mpi/transfers.h"

namespace weft {

/// An all-reduce that is over after a few short messages, so that what it costs this process to think about it shows:
/// one object, and nothing else is allocated. It sends what `add_transfers` would send.
class SmallAllReduce : public MpiOperation {
 public:
  /// Whether it is one, on the host and not checked.
  static bool takes(const Operation& operation, const MpiChannel& channel);

  /// Under the engine's lock.
  SmallAllReduce(const Operation& operation, MpiChannel& channel);
  bool advance(MpiPending& pending, bool is_awaited) override;

 private:
  /// A rank's input: this one's own, or where it is received.
  const std::byte* block(int rank) const;
  void start_round(MpiPending& pending);
  void reduce_blocks();

  MPI_Comm comm_;
  int rank_;
  int size_;
  int tags_;
  uint64_t next_tag_;
  int have_ = 1;
  size_t num_pending_ = 0;
  Reduction reduction_;
  DataType type_;
  int64_t count_;
  int64_t block_bytes_;
  const std::byte* in_;
  std::byte* out_;
  MpiScratch* scratch_;
  MpiScratch::Block received_;
};

}  // namespace weft
