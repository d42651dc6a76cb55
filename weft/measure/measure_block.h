#pragma once

#include <atomic>

#include "weft/measure/block_runner.h"
#include "weft/measure/median.h"

namespace weft {

/// What holds for all blocks of a profile.
struct MeasureSettings {
  Precision precision = Precision::kFp32;
  at::Device device = at::kCPU;
  int num_cores = 1;  ///< that ranks share on a processor
  StopRule rule;
  double copy_bytes_per_ms = 1e9;           ///< of a GPU's memory
  const std::atomic<bool>* stop = nullptr;  ///< once true, nothing is begun
};

struct MeasuredBlock {
  BlockMeasurement measurement;
  int64_t outliers = 0;
  std::optional<double> clock_mhz;  ///< of the device while it ran
};

/// Runs a block until its times are known, on as many ranks at once as its shape says. Nothing where it was stopped.
Result<std::optional<MeasuredBlock>> measure_block(const Model& model, const BlockShape& shape,
                                                   const MeasureSettings& settings);

}  // namespace weft
