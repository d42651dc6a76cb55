#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "weft/base/json.h"

namespace weft {

/// Where one rank's time went in a step.
struct RankStep {
  double compute_ms = 0;
  double communication_ms = 0;  ///< blocked in collectives
  double bubble_ms = 0;         ///< blocked until a neighbour in the pipeline had something
  double data_ms = 0;           ///< until its samples were prepared
  double peak_memory_bytes = 0;
};

/// What routers did in a step.
struct ExpertLoad {
  std::vector<int64_t> rows;  ///< that chose each expert, of all layers and ranks
  double imbalance = 1;       ///< in the layer where it is largest: rows of the busiest expert over the mean
  int64_t moved_bytes = 0;    ///< from rank to rank, there and back
};

/// What is known after a step.
struct StepMetrics {
  int64_t step = 0;  ///< steps done
  double loss = 0;
  double balance_loss = 0;  ///< of routers, not part of the loss; 0 without
  double gradient_norm = 0;
  std::vector<std::pair<std::string, double>> module_gradient_norms;  ///< by the name of each module
  double learning_rate = 0;
  int64_t num_tokens = 0;  ///< of the llm, in the whole batch
  int64_t num_targets = 0;
  double step_ms = 0;
  double model_flops = 0;
  std::optional<double> utilization;  ///< share of the cluster's peak; nothing where the peak is not known
  std::vector<RankStep> ranks;
  std::optional<ExpertLoad> experts;  ///< nothing without routers

  double tokens_per_s() const { return step_ms > 0 ? static_cast<double>(num_tokens) / step_ms * 1e3 : 0; }
};

/// One line of metrics.jsonl.
Json to_json(const StepMetrics& metrics);
/// "step 12/100  loss 4.2112  norm 0.873  lr 1.0e-04  512 tokens/s  MFU 31.2 %  1.2 GiB".
std::string progress_line(const StepMetrics& metrics, int64_t num_steps);

}  // namespace weft
