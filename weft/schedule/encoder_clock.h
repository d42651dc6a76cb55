#pragma once

#include <cstdint>
#include <limits>
#include <vector>

#include "weft/schedule/cell_table.h"
#include "weft/schedule/schedule.h"

namespace weft {

/// What of one encoder has run, and from when on the actions that depend on it may start. Whoever plays rows (lowering,
/// the bubble filler, the simulator) tells it what ended and asks what is ready, in times of its own.
class EncoderClock {
 public:
  static constexpr double kNever = std::numeric_limits<double>::infinity();

  /// `bridge` passes between encoder and entry stage, each way.
  EncoderClock(const ScheduledEncoder& encoder, int32_t num_ranks, double bridge = 0);

  const ScheduledEncoder& encoder() const { return *encoder_; }
  /// The group of a rank, −1 where the encoder does not run.
  int32_t group_of(int32_t rank) const { return group_of_rank_[static_cast<size_t>(rank)]; }
  int32_t num_forwards(int32_t group) const { return forwards_[static_cast<size_t>(group)]; }
  int32_t num_backwards(int32_t group) const { return backwards_[static_cast<size_t>(group)]; }

  /// When what a group's EF or EB reads is there, and EF has a place among the live ones; kNever when not known yet.
  double forward_ready(int32_t group, int32_t macro) const;
  double backward_ready(int32_t group, int32_t macro) const;
  /// When all embeddings of a microbatch have reached the entry stage.
  double microbatch_ready(int32_t microbatch) const;

  /// `arrival`: when what it made is at the group's neighbour in the encoder's own pipeline.
  void forward_ended(int32_t group, int32_t macro, double end, double arrival);
  void backward_ended(int32_t group, int32_t macro, double arrival);
  void forward_ended(int32_t group, int32_t macro, double end) { forward_ended(group, macro, end, end); }
  /// F of the entry stage has read the microbatch's embeddings.
  void microbatch_read(int32_t microbatch, double end);
  /// B or I of the entry stage has made their gradient.
  void microbatch_gradient(int32_t microbatch, double end);

  /// Most macro batches that were alive at once on any group.
  int32_t peak_live() const;

 private:
  /// Something that is complete after several parts: how many are missing, and when the last of the others came.
  struct Parts {
    int32_t missing = 0;
    double last = 0;
    double ready() const { return missing > 0 ? kNever : last; }
  };

  const ScheduledEncoder* encoder_;
  double bridge_;
  std::vector<int32_t> group_of_rank_;
  std::vector<int32_t> forwards_, backwards_;               // run so far, per group
  std::vector<int32_t> peak_kept_;                          // most between EF and EB, per group
  CellTable<double> forward_ends_;                          // per group and macro batch
  CellTable<double> forward_arrivals_, backward_arrivals_;  // the same, at the neighbour that waits for it
  std::vector<Parts> encoded_, gradients_;                  // per macro batch: over replicas, over microbatches
  std::vector<int32_t> unread_;                             // per macro batch: microbatches that have yet to read it
  std::vector<double> released_;  // ends of the reads that were a macro batch's last, in order
};

}  // namespace weft
