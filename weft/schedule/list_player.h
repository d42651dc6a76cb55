#pragma once

#include <span>
#include <vector>

#include "weft/schedule/encoder_forms.h"

namespace weft {

/// Which of two actions that want the same rank goes first: the one with more work behind it, where an encoder's
/// actions count as having a lead of so many units more (or, negative, less).
struct FillPolicy {
  double forward_lead = 0;
  double backward_lead = 0;
  /// An action does not start when one of higher priority could start on its ranks within this share of its duration.
  double patience = 0;
};

/// Rows with floating encoder actions: what is played.
struct FillProblem {
  const Schedule& fixed;              ///< rows whose order stands
  std::span<const int32_t> floating;  ///< encoders whose actions are not in the rows
  std::span<const EncoderPlacement> placements;
  const StageDurations& durations;

  double duration_ms(const Action& action, int32_t group) const;
  bool is_floating(int32_t encoder) const;
};

/// What is known of the fixed rows without the floating actions: per rank and position.
struct FillTimes {
  std::vector<std::vector<double>> start_ms;
  std::vector<std::vector<double>> tail_ms;  ///< from the start of an action to the end of the longest chain behind it
  std::vector<double> entry_tail_ms;         ///< of F of the entry stage, per microbatch
};

/// Plays the fixed rows alone; floating encoders are taken to have run already.
FillTimes play_fixed(const FillProblem& problem);

/// Plays fixed rows and floating actions together, and returns the rows that came out. Leads are times `unit_ms`.
std::vector<std::vector<Action>> play_filling(const FillProblem& problem, const FillTimes& times,
                                              const FillPolicy& policy, double unit_ms);

/// When rows that hold all encoders' actions end.
double makespan_ms(const Schedule& complete, std::span<const EncoderPlacement> placements,
                   const StageDurations& durations);

}  // namespace weft
