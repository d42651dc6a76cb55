#pragma once

#include <cstdint>
#include <limits>
#include <optional>

#include "weft/base/json.h"
#include "weft/engine/train_config.h"
#include "weft/engine/train_request.h"

namespace weft {

/// Where the evaluations of a run stand: what checkpoints keep of them, so that a run goes on exactly.
class Evaluations {
 public:
  explicit Evaluations(const TrainConfig::Evaluation& settings) : settings_(settings) {}
  /// As they stood in a checkpoint of a step; as before the first where it knows of none that there can have been.
  void restore(const Json& run, int64_t step);
  /// For a checkpoint's `run`.
  Json to_json() const;
  /// What a checkpoint knows of evaluations, which is no setting, left out.
  static Json settings_in(Json run);

  /// Whether the loss is to be measured after so many steps of all.
  bool is_due(int64_t step, int64_t num_steps) const;
  /// Whether it is the best so far.
  bool add(int64_t step, double loss);
  /// Whether the last ones have been no better than the best for as long as the run is patient.
  bool ends_run() const { return settings_.patience > 0 && without_gain_ >= settings_.patience; }

  std::optional<Evaluated> best() const { return best_; }
  int64_t without_gain() const { return without_gain_; }

 private:
  const TrainConfig::Evaluation& settings_;
  std::optional<Evaluated> best_;
  int64_t without_gain_ = 0;
};

}  // namespace weft
