#pragma once

#include <cstdint>
#include <memory>

#include <ATen/core/Tensor.h>

#include "weft/tensor/memory_count.h"

namespace weft {

/// What the tensors of the calling rank take on its device, from when this is made: on the thread that computes.
class RankMemory {
 public:
  explicit RankMemory(at::Device device);

  /// The peak counts from here on.
  void forget_peak();
  int64_t peak_bytes() const;

 private:
  at::Device device_;
  std::shared_ptr<MemoryCount> count_;
  CountedThread counted_;
};

}  // namespace weft
