#pragma once

#include <array>
#include <span>
#include <vector>

#include "weft/schedule/schedule.h"

namespace weft {

/// What a stage does, as far as time goes: F, B or I, and W.
inline constexpr size_t kNumWorks = 3;
using StageTimes = std::array<double, kNumWorks>;

/// A longest path through a schedule: how often it meets each work of each stage, and how many transfers it waits for.
/// The schedule's order is fixed, so the path is there whatever the times are, and its length is a lower bound on the
/// makespan of every other assignment of times.
struct CriticalPath {
  std::vector<std::array<int32_t, kNumWorks>> visits;  ///< per stage
  int32_t num_transfers = 0;

  double length_ms(std::span<const StageTimes> times, double p2p_ms) const;
  bool operator==(const CriticalPath&) const = default;
};

/// The order of a compute-only schedule as a graph, for finding many makespans quickly: an action starts when the one
/// before it in its row has ended and what it reads has arrived. Gives the same makespans as run_schedule.
class ScheduleGraph {
 public:
  explicit ScheduleGraph(const Schedule& schedule);

  int32_t num_stages() const { return num_stages_; }
  double makespan_ms(std::span<const StageTimes> times, double p2p_ms);
  /// The longest path of the makespan that was asked for last.
  CriticalPath critical_path() const;

 private:
  struct Node {
    int32_t before;  ///< in the row; 0 for none
    int32_t source;  ///< what it reads; 0 for none
    int32_t work;    ///< stage · kNumWorks + work
    bool crosses;    ///< whether what it reads comes from another rank
  };

  int32_t num_stages_;
  std::vector<Node> nodes_;     // in an order in which every node comes after what it waits for; 0 stands for the start
  std::vector<double> end_ms_;  // of the makespan that was asked for last
  double p2p_ms_ = 0;
};

/// How many microbatches of each of its chunks a rank holds at once, between their F and their B, or W where it is
/// split: the vectors (in the order of the rank's stages) that no combination of two others covers. A rank's peak
/// memory is the largest of the sums that they weight, since memory is linear in them.
std::vector<std::vector<int32_t>> in_flight_peaks(const Schedule& schedule, int32_t rank);

}  // namespace weft
