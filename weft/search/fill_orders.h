#pragma once

#include <optional>
#include <unordered_map>
#include <vector>

#include "weft/schedule/encoder_forms.h"
#include "weft/schedule/generators.h"

namespace weft {

/// Everything that the order of encoders in a pipeline's bubbles depends on.
struct FillProblem {
  ScheduleName schedule = ScheduleName::k1f1b;
  PipelineShape shape;
  int32_t entry_stage = 0;
  StageDurations durations;
  std::vector<EncoderPlacement> encoders;  ///< with their times

  bool operator==(const FillProblem&) const = default;
};

/// Orders of encoders in bubbles. Candidates that differ only in what does not compute share theirs.
class FillOrders {
 public:
  /// The compute-only schedule with the encoders in its rows; nothing where there is none.
  const Schedule* order_of(FillProblem problem);

 private:
  struct Hash {
    size_t operator()(const FillProblem& problem) const;
  };

  std::unordered_map<FillProblem, std::optional<Schedule>, Hash> orders_;
};

}  // namespace weft
