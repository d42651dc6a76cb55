#pragma once

#include <optional>
#include <string>

#include "weft/comm/world.h"
#include "weft/meaning/routers.h"
#include "weft/pipeline/training_rank.h"
#include "weft/record/run_record.h"

namespace weft {

/// Brings together on rank 0 what is written down of some of a run's steps. All ranks make one and call it alike.
class StepRecorder {
 public:
  /// World and plan must outlive it. The plan must be legal.
  StepRecorder(World& world, const Plan& plan);

  bool wants(int64_t steps_done, int64_t num_steps) const;

  /// What this rank knows of the step.
  struct Own {
    const StepBatch& batch;
    const StepReport& report;
    const StepMetrics& metrics;
    double start_ms = 0;  ///< by the clock of the report's events
    int64_t steps_before = 0;
    bool balances_experts = false;
  };
  /// On rank 0, but for the samples; nothing on others.
  std::optional<StepRecord> gather(const Own& own);

 private:
  LoadPart part_of(const Own& own) const;

  World* world_;
  const Plan* plan_;
  Routers routers_;
  int64_t events_per_step_ = 0;
  bool records_load_ = true;
};

}  // namespace weft
