#include "weft/comm/mpi/small_all_reduce.h"

#include <array>

namespace weft {
namespace {

/// Above this, memory for as many pointers and requests would have to be had.
constexpr int kMostRanks = 16;

}  // namespace

bool SmallAllReduce::takes(const Operation& operation, const MpiChannel& channel) {
  const int64_t bytes = operation.in.num_bytes();
  const MpiTuning& tuning = channel.tuning;
  return operation.kind == OperationKind::kAllReduce && channel.size > 1 && channel.size <= kMostRanks && bytes > 0 &&
         bytes <= tuning.most_small_bytes(channel.size) &&
         bytes <= std::min(tuning.segment_bytes, tuning.most_message_bytes);
}

SmallAllReduce::SmallAllReduce(const Operation& operation, MpiChannel& channel)
    : comm_(channel.comm),
      rank_(channel.rank),
      size_(channel.size),
      tags_(channel.tags),
      next_tag_(channel.next_tag),
      reduction_(operation.reduction),
      type_(operation.in.type),
      count_(operation.in.count),
      block_bytes_(operation.in.num_bytes()),
      in_(static_cast<const std::byte*>(operation.in.data)),
      out_(static_cast<std::byte*>(operation.out.data)),
      scratch_(channel.scratch) {
  for (int have = 1; have < size_; have *= 2) ++channel.next_tag;
}

const std::byte* SmallAllReduce::block(int rank) const {
  return rank == rank_ ? in_ : (*received_).data() + (rank < rank_ ? rank : rank - 1) * block_bytes_;
}

void SmallAllReduce::start_round(MpiPending& pending) {
  const GatherRound round = gather_round(rank_, size_, have_);
  const int tag = collective_tag(next_tag_++, tags_), bytes = static_cast<int>(block_bytes_);
  for (int i = 0; i < round.more; ++i) {
    // Not this rank's own, so it is this object's memory.
    auto* const to = const_cast<std::byte*>(block((rank_ + have_ + i) % size_));
    check_mpi(MPI_Irecv(to, bytes, MPI_BYTE, round.from, tag, comm_, pending.add(num_pending_)), "MPI_Irecv");
  }
  for (int i = 0; i < round.more; ++i) {
    check_mpi(MPI_Isend(block((rank_ + i) % size_), bytes, MPI_BYTE, round.to, tag, comm_, pending.add(num_pending_)),
              "MPI_Isend");
  }
  have_ *= 2;
}

void SmallAllReduce::reduce_blocks() {
  std::array<const std::byte*, kMostRanks> inputs{};
  for (int r = 0; r < size_; ++r) inputs[static_cast<size_t>(r)] = block(r);
  reduce(reduction_, type_, std::span(inputs).first(static_cast<size_t>(size_)), {&out_, 1}, count_);
}

bool SmallAllReduce::advance(MpiPending& pending, bool) {
  if (num_pending_ > 0) return false;
  if (!received_) received_ = scratch_->take(block_bytes_ * (size_ - 1));
  if (have_ < size_) {
    start_round(pending);
  } else {
    reduce_blocks();
    scratch_->give(std::move(received_));
    set_done();
  }
  return true;
}

}  // namespace weft
