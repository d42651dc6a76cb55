#pragma once

#include <cstdint>
#include <memory>

#include <ATen/core/Tensor.h>

namespace weft {

/// Memory of CPU tensors that come and go in every step. What one gives back stays mapped for the next of its size, so
/// that the kernel need not make its pages afresh; meanwhile the kernel may take them for others. Nothing of this is
/// counted: a MemoryCount has what tensors hold. Memory of other devices, whose allocators keep it themselves, and
/// small tensors are LibTorch's own.
class PagePool {
 public:
  PagePool();

  /// A flat tensor with undefined elements. It may outlive the pool.
  at::Tensor empty(int64_t num_elements, const at::TensorOptions& options);
  at::Tensor zeros(int64_t num_elements, const at::TensorOptions& options);

 private:
  class Blocks;
  struct Loan;

  std::shared_ptr<Blocks> blocks_;
};

}  // namespace weft
