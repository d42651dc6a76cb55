#pragma once

#include <atomic>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "weft/data/sample_costs.h"
#include "weft/plan/plan.h"
#include "weft/schedule/step_metrics.h"

namespace weft {

/// What a rank is predicted to hold, in bytes.
struct RankNeed {
  double states_bytes = 0;  ///< weights, gradients, optimizer states: all the time
  double step_bytes = 0;    ///< activations, workspace and buffers on top, when it holds most

  double snapshot_bytes = 0;  ///< of the host, while a checkpoint is saved

  double total_bytes() const { return states_bytes + step_bytes; }
};

/// What `weft train` asks of the runtime half.
struct TrainRequest {
  Plan plan;                ///< a legal one
  std::string plan_source;  ///< its file, for messages
  std::filesystem::path config_file;
  std::filesystem::path run_folder;  ///< goes before the configuration's; empty: that, else a new one in runs/
  bool resumes = false;
  std::filesystem::path resume_from;        ///< a run's folder, or one of its checkpoints; empty: the run folder
  std::filesystem::path trace;              ///< where the last step's timeline goes; empty: nowhere
  SampleCosts costs;                        ///< for plans that balance
  std::vector<RankNeed> memory;             ///< by rank; empty: it is not compared with what there is
  const std::atomic<bool>* stop = nullptr;  ///< once true, the run ends after the step that is under way
  /// Called on one rank, after every step.
  std::function<void(const StepMetrics& metrics, int64_t num_steps)> on_step;
  /// Says something that is not the result: a line.
  std::function<void(const std::string&)> say;
  /// Shows what is under way, until the next.
  std::function<void(const std::string&)> show;
};

/// The loss over samples that training does not see, after so many steps.
struct Evaluated {
  int64_t step = 0;
  double loss = 0;
};

struct TrainReport {
  std::filesystem::path run_folder;
  int64_t first_step = 0;  ///< steps that were done before this run
  int64_t last_step = 0;
  bool is_stopped = false;           ///< before all steps were done, because it was asked to
  bool is_early = false;             ///< because evaluations gained nothing any more
  bool is_saved = false;             ///< the state after the last step is in `checkpoint`
  std::optional<double> first_loss;  ///< of this run's first step
  StepMetrics last;                  ///< of its last step; nothing where there was none left to do
  double mean_step_ms = 0;           ///< without the first, which warms up
  double mean_tokens_per_s = 0;
  std::optional<double> mean_utilization;
  std::filesystem::path checkpoint;          ///< the newest; empty where there is none
  std::optional<Evaluated> evaluated, best;  ///< the last of all evaluations, and the one with the lowest loss
  std::filesystem::path best_checkpoint;     ///< of that; empty where none is kept
};

/// What `weft eval` asks.
struct EvalRequest {
  Plan plan;
  std::string plan_source;
  std::filesystem::path config_file;
  std::filesystem::path checkpoint;  ///< a run's folder, or one of its checkpoints; empty: the configuration's weights
  std::filesystem::path data;        ///< conversations or settings, all of which are evaluated; empty: held-out ones
  std::vector<RankNeed> memory;      ///< by rank; empty: it is not compared with what there is
  std::function<void(const std::string&)> say;
  std::function<void(const std::string&)> show;
};

struct EvalReport {
  double loss = 0;  ///< per target token
  double perplexity() const { return std::exp(loss); }
  int64_t num_targets = 0;
  int64_t num_tokens = 0;
  int64_t num_batches = 0;
  double ms = 0;
  int64_t step = 0;  ///< of the checkpoint; 0 for weights
};

}  // namespace weft
