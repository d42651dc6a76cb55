#pragma once

#include "weft/comm/world.h"
#include "weft/engine/plan_switches.h"
#include "weft/engine/trainer.h"

namespace weft {

struct Checkpoint;
struct RunStart;
class TrainingSession;

/// Tells, on rank 0, what is about to be made: the model, the ranks, and where weights come from.
void say_preface(World& world, const Plan& plan, const TrainConfig& config, const std::optional<Checkpoint>& checkpoint,
                 const std::function<void(const std::string&)>& say,
                 const std::function<void(const std::string&)>& show);

/// The steps of a training run, with what it leaves: metrics, records, checkpoints. What is given must outlive it.
class RunLoop {
 public:
  RunLoop(const Plan& plan, const TrainConfig& config, const TrainOptions& options, PlanSwitches& switches)
      : plan_(plan), config_(config), options_(options), switches_(switches) {}

  /// One rank's part. All ranks of the plan's world call it; the report is rank 0's.
  Result<TrainReport> run_rank(World& world);

 private:
  /// All that reads and writes files before the first step, for which ranks wait as long as it takes.
  Result<std::unique_ptr<TrainingSession>> begin(World& world, std::optional<RunStart>& start);

  const Plan& plan_;
  const TrainConfig& config_;
  const TrainOptions& options_;
  PlanSwitches& switches_;
};

}  // namespace weft
