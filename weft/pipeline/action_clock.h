#pragma once

#include <vector>

#include <ATen/core/Tensor.h>
#include <c10/core/Event.h>

#include "weft/schedule/timeline.h"

namespace weft {

/// Blocks until a device has done all that it was given; nothing to do on a CPU.
void wait_for_device(at::Device device);

/// When the actions of a step began and ended. A host hands a GPU's work over long before it is done, so the device
/// itself is asked: marks go into its stream around every action and are read once the step is over.
class ActionClock {
 public:
  /// Marks are made where `asks_device` and the device is no CPU; otherwise this does nothing.
  ActionClock(at::Device device, bool asks_device);

  void begin_action() { mark(); }
  void end_action() { mark(); }

  /// Waits for the device, and puts its times into events that hold the host's, one for each action.
  void resolve(std::vector<TimelineEvent>& events);

 private:
  void mark();

  at::Device device_;
  bool asks_device_;
  double begin_ms_ = 0;            ///< of the host, when the first mark was made
  std::vector<c10::Event> marks_;  ///< the beginning of the step, then two an action
};

}  // namespace weft
