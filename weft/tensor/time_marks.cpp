#include "weft/tensor/time_marks.h"

#include <c10/core/impl/VirtualGuardImpl.h>

#include "weft/base/clock.h"

namespace weft {

size_t TimeMarks::mark() {
  if (device_.is_cpu()) {
    host_ms_.push_back(now_ms());
    return host_ms_.size() - 1;
  }
  events_.emplace_back(device_.type(), c10::EventFlag::BACKEND_DEFAULT);  // the flag that has times
  events_.back().record(c10::impl::VirtualGuardImpl(device_.type()).getStream(device_));
  return events_.size() - 1;
}

void TimeMarks::wait() {
  if (!events_.empty()) events_.back().synchronize();
}

bool TimeMarks::is_past() const {
  return events_.empty() || events_.back().query();
}

double TimeMarks::ms_between(size_t begin, size_t end) const {
  return device_.is_cpu() ? host_ms_[end] - host_ms_[begin] : events_[begin].elapsedTime(events_[end]);
}

void TimeMarks::clear() {
  host_ms_.clear();
  events_.clear();
}

void wait_for_device(at::Device device) {
  if (device.is_cpu()) return;
  c10::impl::VirtualGuardImpl(device.type()).synchronizeDevice(device.index());
}

}  // namespace weft
