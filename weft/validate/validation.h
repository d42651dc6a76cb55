#pragma once

#include <functional>
#include <string>
#include <vector>

#include "weft/validate/calibrate.h"

namespace weft {

/// One run, predicted.
struct PredictedRun {
  std::string name;
  double measured_ms = 0;
  double predicted_ms = 0;

  /// Positive where the prediction is too long.
  double error_percent() const { return 100 * (predicted_ms / measured_ms - 1); }
};

struct Accuracy {
  double mean_error_percent = 0;  ///< of the errors' sizes
  double max_error_percent = 0;
};

std::vector<PredictedRun> predict(const std::vector<PreparedRun>& runs, const Efficiency& efficiency);
Accuracy accuracy_of(const std::vector<PredictedRun>& runs);

/// Each group of runs predicted by a calibration to all the others: how far a fit carries. `group_of` numbers the
/// groups from 0. `progress`, where given, is told how many groups are done.
std::vector<PredictedRun> cross_validate(const std::vector<PreparedRun>& runs,
                                         const std::function<size_t(size_t run)>& group_of, size_t num_groups,
                                         const std::function<void(size_t)>& progress = {});

/// Which of `num_parts` parts each run is in. All runs of a model are in one, so that no fit sees the model that it
/// predicts; of fewer models than parts, runs are dealt out one by one.
struct Folds {
  std::vector<size_t> part_of_run;
  size_t num_models = 0;
  bool has_whole_models = false;
};
Folds folds_of(const std::vector<PreparedRun>& runs, size_t num_parts);

/// What in a table of runs looks like a mistaken unit: predictions that are far off everywhere in one direction.
std::vector<std::string> suspicions(const std::vector<PredictedRun>& runs);

}  // namespace weft
