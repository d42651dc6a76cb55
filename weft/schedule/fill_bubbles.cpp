#include "weft/schedule/fill_bubbles.h"

#include <algorithm>

#include "weft/schedule/encoder_before.h"
#include "weft/schedule/list_player.h"

namespace weft {
namespace {

/// All EF first keeps every macro batch alive, which the bounds may forbid.
bool allows_before(const Schedule& schedule, std::span<const int32_t> filling) {
  return std::all_of(filling.begin(), filling.end(), [&](int32_t index) {
    const EncoderRows& encoder = schedule.encoders[static_cast<size_t>(index)];
    return encoder.live_macro_batches == 0 || encoder.live_macro_batches >= encoder.num_macro_batches;
  });
}

std::vector<FillPolicy> policies() {
  std::vector<FillPolicy> all;
  for (const FillPriority priority :
       {FillPriority::kByTail, FillPriority::kPipelineFirst, FillPriority::kForwardsFirst}) {
    for (const double patience : {0.0, 0.5, 1.0}) all.push_back({priority, patience});
  }
  return all;
}

}  // namespace

Schedule fill_bubbles(const Schedule& fixed, std::span<const int32_t> filling,
                      std::span<const EncoderPlacement> placements, const StageDurations& durations) {
  Schedule best = fixed;
  double best_ms = EncoderClock::kNever;
  const auto consider = [&](Schedule candidate) {
    const double ms = makespan_ms(candidate, placements, durations);
    if (ms >= best_ms) return;
    best_ms = ms;
    best = std::move(candidate);
  };
  const FillProblem problem{fixed, filling, placements, durations};
  const FillTimes times = play_fixed(problem);
  for (const FillPolicy& policy : policies()) {
    Schedule candidate = fixed;
    candidate.rows = play_filling(problem, times, policy).rows;
    consider(std::move(candidate));
  }
  if (allows_before(fixed, filling)) {
    Schedule candidate = fixed;
    add_before(candidate, filling);
    consider(std::move(candidate));
  }
  return best;
}

}  // namespace weft
