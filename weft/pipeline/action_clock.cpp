#include "weft/pipeline/action_clock.h"

#include <algorithm>

#include "weft/base/check.h"
#include "weft/base/clock.h"

namespace weft {

ActionClock::ActionClock(at::Device device, bool asks_device)
    : asks_device_(asks_device && !device.is_cpu()), marks_(device) {
  if (!asks_device_) return;
  wait_for_device(device);  // so that the first mark is passed when it is made
  begin_ms_ = now_ms();
  mark();
}

void ActionClock::mark() {
  if (asks_device_) num_marks_ = marks_.mark() + 1;
}

void ActionClock::resolve(std::vector<TimelineEvent>& events) {
  if (!asks_device_) return;
  WEFT_CHECK(num_marks_ == 2 * events.size() + 1, "{} marks around {} actions", num_marks_, events.size());
  marks_.wait();
  for (size_t i = 0; i < events.size(); ++i) {
    TimelineEvent& event = events[i];
    event.start_ms = begin_ms_ + marks_.ms_between(0, 2 * i + 1);
    event.end_ms = std::max(event.start_ms, begin_ms_ + marks_.ms_between(0, 2 * i + 2));
  }
}

}  // namespace weft
