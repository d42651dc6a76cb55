#pragma once

#include <cstdint>

namespace weft {

/// The learning rate over a run: it rises linearly to `peak` in the warm-up, then falls to `peak · end_fraction`, which
/// the last of `total_steps` steps has, and stays there. A single step after the warm-up has the peak.
struct LearningRate {
  enum class Kind : uint8_t { kConstant, kLinear, kCosine };

  Kind kind = Kind::kCosine;  ///< the way from peak to end; a constant rate stays at its peak
  double peak = 0;
  int64_t warmup_steps = 0;
  int64_t total_steps = 0;
  double end_fraction = 0;

  /// Of the step before which `step` others were done. The first step of a warm-up has rate 0, as in Hugging Face's
  /// schedules; those come to their end one step after the last.
  double at(int64_t step) const {
    return at({.samples = step, .batch = 1, .first_batch = 1, .all_samples = total_steps});
  }

  /// Where a run stands whose global batch may have changed.
  struct Position {
    int64_t samples = 0;      ///< seen before the step
    int64_t batch = 1;        ///< samples of the step
    int64_t first_batch = 1;  ///< of the run's first step: the warm-up's steps are of it
    int64_t all_samples = 0;  ///< that the run will have seen at its end
  };
  /// The same by samples, so that another batch goes on where the rate was. With one batch all along it is the rate by
  /// steps.
  double at(const Position& position) const;
};

}  // namespace weft
