#include "weft/pipeline/action_clock.h"

#include <algorithm>

#include <c10/core/impl/VirtualGuardImpl.h>

#include "weft/base/check.h"
#include "weft/base/clock.h"

namespace weft {

void wait_for_device(at::Device device) {
  if (!device.is_cpu()) c10::impl::VirtualGuardImpl(device.type()).synchronizeDevice(device.index());
}

ActionClock::ActionClock(at::Device device, bool asks_device)
    : device_(device), asks_device_(asks_device && !device.is_cpu()) {
  if (!asks_device_) return;
  wait_for_device(device_);  // so that the first mark is passed when it is made
  begin_ms_ = now_ms();
  mark();
}

void ActionClock::mark() {
  if (!asks_device_) return;
  const c10::impl::VirtualGuardImpl guard(device_.type());
  // Only events of this flag keep times.
  marks_.emplace_back(device_.type(), c10::EventFlag::BACKEND_DEFAULT);
  marks_.back().record(guard.getStream(device_));
}

void ActionClock::resolve(std::vector<TimelineEvent>& events) {
  if (!asks_device_) return;
  WEFT_CHECK(marks_.size() == 2 * events.size() + 1, "{} marks around {} actions", marks_.size(), events.size());
  wait_for_device(device_);
  for (size_t i = 0; i < events.size(); ++i) {
    TimelineEvent& event = events[i];
    event.start_ms = begin_ms_ + marks_.front().elapsedTime(marks_[2 * i + 1]);
    event.end_ms = std::max(event.start_ms, begin_ms_ + marks_.front().elapsedTime(marks_[2 * i + 2]));
  }
}

}  // namespace weft
