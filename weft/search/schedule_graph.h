#pragma once

#include <array>
#include <span>
#include <vector>

#include "weft/schedule/schedule.h"

namespace weft {

/// What takes a stage's time: F, B or I, and W of a microbatch; once a step the reduction of its gradients and the
/// update of its weights; and the transfer of a microbatch to the next stage, or of its gradient back.
enum Work : size_t { kForwardWork, kInputWork, kWeightWork, kReduceWork, kUpdateWork, kTransferWork };
inline constexpr size_t kNumWorks = 6;

/// The work that an action of the pipeline, or of the step's end, is.
Work work_of(ActionKind kind);

using StageTimes = std::array<double, kNumWorks>;

/// A longest path through a schedule: how often it meets each work of each stage. The schedule's order is fixed, so the
/// path is there whatever the times are, and its length is a lower bound on the makespan of every other assignment of
/// times.
struct CriticalPath {
  std::vector<std::array<int32_t, kNumWorks>> visits;  ///< per stage

  double length_ms(std::span<const StageTimes> times) const;
  bool operator==(const CriticalPath&) const = default;
};

/// The order of a schedule as a graph, for finding many makespans quickly: an action starts when the one before it in
/// its row has ended and what it reads has arrived. Reductions run beside compute. Takes compute-only schedules without
/// encoders, with the step's end or without. Gives the same makespans as run_schedule where no transfer waits for
/// another.
class ScheduleGraph {
 public:
  explicit ScheduleGraph(const Schedule& schedule);

  int32_t num_stages() const { return num_stages_; }
  double makespan_ms(std::span<const StageTimes> times);
  /// The longest path of the makespan that was asked for last.
  CriticalPath critical_path() const;

 private:
  struct Node {
    int32_t before;  ///< in the row; 0 for none
    int32_t source;  ///< what it reads; 0 for none
    int32_t work;    ///< stage · kNumWorks + work
    int32_t delay;   ///< the same of the transfer that brings what it reads, or the index of a zero
  };

  int32_t num_stages_;
  std::vector<Node> nodes_;        // in an order in which every node comes after what it waits for; 0 is the start
  std::vector<double> durations_;  // of works, and a zero
  std::vector<double> end_ms_;     // of the makespan that was asked for last
};

/// What a rank holds at one moment, by its chunks in the order of stages_of_rank.
struct MemoryMoment {
  std::vector<int32_t> held;      ///< microbatches between F and B, or W where it is split
  std::vector<int32_t> deferred;  ///< of these, between I and W
  int32_t runs = 0;               ///< the chunk whose action runs

  bool operator==(const MemoryMoment&) const = default;
  auto operator<=>(const MemoryMoment&) const = default;  // NOLINT(modernize-use-nullptr)
};

/// The moments of a rank's pipeline that no other covers. The rank's peak is the largest of the sums that they weight,
/// since memory is linear in them.
std::vector<MemoryMoment> memory_moments(const Schedule& schedule, int32_t rank);

}  // namespace weft
