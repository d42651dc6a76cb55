#include "weft/comm/cuda/cuda_memory.h"

#include <algorithm>
#include <bit>

namespace weft {
namespace {

constexpr size_t kSmallest = 4096;
constexpr unsigned kPortable = 1;  // CU_MEMHOSTALLOC_PORTABLE: pinned for all devices

}  // namespace

CudaMemory::~CudaMemory() {
  for (const auto& [bytes, blocks] : free_) {
    for (std::byte* block : blocks) free(block);
  }
}

CudaMemory::Block CudaMemory::take(int64_t num_bytes) {
  // Powers of two, so that few sizes come up, and they fit the next time.
  const size_t bytes = std::bit_ceil(std::max(static_cast<size_t>(num_bytes), kSmallest));
  Block block;
  {
    const std::lock_guard lock(mutex_);
    std::vector<std::byte*>& same_size = free_[bytes];
    if (!same_size.empty()) {
      block.data_ = same_size.back();
      same_size.pop_back();
    }
  }
  if (block.data_ == nullptr) block.data_ = allocate(bytes);
  block.bytes_ = bytes;
  block.owner_ = shared_from_this();
  return block;
}

void CudaMemory::give(std::byte* data, size_t bytes) {
  const std::lock_guard lock(mutex_);
  free_[bytes].push_back(data);
}

std::byte* CudaMemory::allocate(size_t bytes) const {
  const OnCudaDevice on(*device_);
  if (kind_ == Kind::kDevice) {
    CudaAddress address = 0;
    device_->check(device_->driver().cuMemAlloc_v2(&address, bytes), "cuMemAlloc");
    return reinterpret_cast<std::byte*>(address);
  }
  void* memory = nullptr;
  device_->check(device_->driver().cuMemHostAlloc(&memory, bytes, kPortable), "cuMemHostAlloc");
  return static_cast<std::byte*>(memory);
}

void CudaMemory::free(std::byte* data) const {
  // At the end; what the driver says then helps nobody.
  const CudaDriver& driver = device_->driver();
  CudaContext popped = nullptr;
  if (driver.cuCtxPushCurrent_v2(device_->context()) != 0) return;
  kind_ == Kind::kDevice ? driver.cuMemFree_v2(reinterpret_cast<CudaAddress>(data)) : driver.cuMemFreeHost(data);
  driver.cuCtxPopCurrent_v2(&popped);
}

}  // namespace weft
