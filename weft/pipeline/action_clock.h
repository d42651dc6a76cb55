#pragma once

#include <vector>

#include "weft/schedule/timeline.h"
#include "weft/tensor/time_marks.h"

namespace weft {

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

  bool asks_device_;
  double begin_ms_ = 0;  ///< of the host, when the first mark was made
  TimeMarks marks_;      ///< the beginning of the step, then two an action
  size_t num_marks_ = 0;
};

}  // namespace weft
