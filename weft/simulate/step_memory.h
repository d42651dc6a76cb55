#pragma once

#include <vector>

#include "weft/cost/counted_tensor.h"
#include "weft/meaning/held_state.h"
#include "weft/meaning/step_load.h"
#include "weft/plan/plan.h"
#include "weft/schedule/action.h"

namespace weft {

/// Bytes on top of what a rank holds before a step, as it comes to the end of an action: activations, and gradients
/// that come with their first backward.
struct ActionBytes {
  Action action;
  int64_t held = 0;          ///< when it is over, without what is on its way to other ranks
  int64_t peak = 0;          ///< the most while it runs, with what may still be on its way
  int64_t settled_peak = 0;  ///< the same where all that was sent before has arrived, and kernels need no memory
};

/// What a rank of a plan holds in one step.
struct StepMemory {
  HeldState state;                   ///< when the step is over
  int64_t late_gradients = 0;        ///< of it, what is not there before
  std::vector<ActionBytes> actions;  ///< in the order of its row

  int64_t bytes_before() const { return state.weights + state.gradients + state.optimizer - late_gradients; }
  /// The most that it holds at once, start-up included.
  int64_t peak_bytes() const;
  /// The same if all that it sends arrives before its next action, and kernels of half precision need no memory of
  /// their own: other ranks and the processor have a say in that.
  int64_t settled_peak_bytes() const;
};

/// For a batch's own lengths, as the runtime's operators hold tensors. On GPUs the batch itself is among them, and what
/// libraries keep for themselves. The plan must be legal and obeyed by training (find_unobeyed), and the batch one of
/// it.
Result<StepMemory> step_memory(const Plan& plan, const StepLoad& load, int64_t rank,
                               WalkedDevice device = WalkedDevice::kProcessor);

}  // namespace weft
