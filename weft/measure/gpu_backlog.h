#pragma once

#include <ATen/core/Tensor.h>

namespace weft {

/// Work for a GPU to be at while its host prepares what is timed: stages wait for their device once in a forward, and a
/// device that has nothing to do would be timed by how fast its host hands kernels over. Nothing for processors.
class GpuBacklog {
 public:
  explicit GpuBacklog(at::Device device);

  /// Some milliseconds, of as much power as training takes.
  void add();

 private:
  at::Tensor factor_;
  at::Tensor product_;
};

}  // namespace weft
