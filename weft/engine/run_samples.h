#pragma once

#include <memory>
#include <string>

#include "weft/data/sample_source.h"
#include "weft/engine/train_config.h"
#include "weft/engine/worker_threads.h"
#include "weft/plan/plan.h"

namespace weft {

/// The samples that are trained on, and those that are not; null where none are held out.
struct RunSamples {
  std::shared_ptr<SampleSource> trained;
  std::shared_ptr<SampleSource> unseen;
  std::string packing = {};  ///< what was packed and how full rows are, for who reads a run's first lines
};

/// Drawn from the plan's workload, or read from the configuration's data.
Result<RunSamples> open_run_samples(const Plan& plan, const TrainConfig& config, WorkerThreads& workers);

}  // namespace weft
