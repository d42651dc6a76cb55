#pragma once

#include <optional>
#include <string>
#include <vector>

#include "weft/profile/profile.h"
#include "weft/record/run_record.h"
#include "weft/schedule/timeline.h"
#include "weft/simulate/played_step.h"

namespace weft {

/// Two numbers of one thing.
struct Compared {
  double predicted = 0;
  double measured = 0;

  double difference() const { return predicted - measured; }
  /// Positive where the prediction is too large; 0 where nothing was measured.
  double error_percent() const { return measured > 0 ? 100 * (predicted / measured - 1) : 0; }
};

/// All actions of a kind in a step.
struct ComparedActions {
  ActionKind kind = ActionKind::kForward;
  int64_t count = 0;          ///< in a step, of all ranks
  bool is_compute = false;    ///< others are measured as the host hands them over, and predicted as links are busy
  Compared ms;                ///< of one
  Compared communication_ms;  ///< of that
};

/// One rank, in a step.
struct ComparedRank {
  int64_t rank = 0;
  Compared busy_ms;                      ///< in actions that compute
  Compared waiting_ms;                   ///< for transfers, sums and other ranks
  std::optional<Compared> memory_bytes;  ///< in the step in which it held most; nothing where it cannot be predicted
};

struct ComparedStep {
  int64_t step = 0;
  bool is_warm_up = false;
  Compared ms;
  std::optional<Compared> memory_bytes;  ///< of its fullest rank
};

/// A part of the step, in the mean over ranks; all together are the step.
struct ComparedTerm {
  std::string name;
  Compared ms;
  std::string mend;  ///< what would mend it, as a sentence
};

/// A run held against the prediction for its own samples. Times are medians over the steps that do not warm up.
struct RunComparison {
  Compared step_ms;
  double noise_percent = 0;  ///< how surely the measured median is known, of the step
  std::vector<ComparedActions> actions;
  std::vector<ComparedRank> ranks;
  std::vector<ComparedStep> steps;
  std::vector<ComparedTerm> terms;
  bool memory_is_exceeded = false;  ///< some rank held more in some step than was predicted for it
  std::string memory_from;          ///< "the step's own lengths" or "a high load of the plan"
  std::vector<std::string> warnings;
  Timeline timeline;  ///< of the step nearest to the median: of each rank what was measured, then what was predicted

  const ComparedTerm& most_wrong() const;
  /// Of the rank that held most.
  const ComparedRank* fullest() const;
};

/// Whether a run followed a plan. The error says where they differ; what the plan says of its cluster and of what was
/// predicted may.
std::optional<Error> check_same_run(const Plan& plan, const Plan& ran, const std::string& run_folder);

/// The plan must be legal and the one that ran.
Result<RunComparison> compare_run(const Plan& plan, const RunRecord& record, const Profile* profile = nullptr);

Json to_json(const RunComparison& comparison);

// For who learns from runs.

/// The run's steps that count: without those that warm up, where others are left.
std::vector<const StepRecord*> settled_steps(const RunRecord& record);
/// Why a record is not one of the plan.
std::optional<Error> find_foreign_step(const Plan& plan, const Schedule& schedule, const RunRecord& record);
/// Actions that keep a rank's compute stream: F, B, I, W, EF, EB, UPDATE and EU.
bool is_work(ActionKind kind);

}  // namespace weft
