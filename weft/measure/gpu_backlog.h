#pragma once

#include <ATen/core/Tensor.h>

namespace weft {

/// Work for a GPU to be at while its host prepares what is timed: a device that has nothing to do would be timed by how
/// fast its host hands kernels over. As little of it as that takes: a device's clocks follow the power of what it does,
/// and are to be those of the timed work. Nothing for processors.
class GpuBacklog {
 public:
  explicit GpuBacklog(at::Device device);

  /// Before work that is timed: until the device has so much to do.
  void top_up(double enough_ms);
  /// Work was handed over that the device needs `ms` for, as far as that is known.
  void handed_over(double ms);
  /// The device has nothing to do.
  void forget();

 private:
  at::Tensor factor_;
  at::Tensor product_;
  at::Tensor copied_;
  double busy_until_ms_ = 0;  ///< of the host's clock
};

}  // namespace weft
