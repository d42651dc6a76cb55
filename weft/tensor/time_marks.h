#pragma once

#include <vector>

#include <ATen/core/Tensor.h>
#include <c10/core/Event.h>

namespace weft {

/// Moments of a device's work: on a GPU when it came to them, not when the host put them there.
class TimeMarks {
 public:
  explicit TimeMarks(at::Device device) : device_(device) {}

  /// Now, after what the calling thread has put on the device so far.
  size_t mark();
  /// Until the device has come to all of them.
  void wait();
  /// The device has come to all of them already.
  bool is_past() const;
  /// After wait.
  double ms_between(size_t begin, size_t end) const;
  void clear();

 private:
  at::Device device_;
  std::vector<double> host_ms_;
  std::vector<c10::Event> events_;
};

/// Until a device has done all that was put there; nothing for a processor.
void wait_for_device(at::Device device);

}  // namespace weft
