#pragma once

#include <memory>
#include <string>
#include <vector>

#include "weft/comm/cuda/cuda_device.h"
#include "weft/comm/cuda/cuda_memory.h"
#include "weft/comm/suite.h"

namespace weft::suite {

/// A GPU's memory for the suite, used on a stream of its own.
class GpuPlace : public MemoryPlace {
 public:
  explicit GpuPlace(const std::shared_ptr<CudaDevice>& device)
      : device_(device), stream_(device), memory_(CudaMemory::create(device, CudaMemory::Kind::kDevice)) {}

  Device device() const override { return {DeviceKind::kCuda, device_->index()}; }
  void* stream() const override { return stream_.handle(); }
  const std::shared_ptr<CudaDevice>& cuda() const { return device_; }

  std::shared_ptr<std::byte> allocate(size_t num_bytes) const override {
    if (num_bytes == 0) return nullptr;
    auto block = std::make_shared<CudaMemory::Block>(memory_->take(static_cast<int64_t>(num_bytes)));
    return {block->data(), [block](std::byte*) {}};
  }
  void write(std::byte* to, const std::vector<std::byte>& bytes) const override {
    if (bytes.empty()) return;
    const OnCudaDevice on(*device_);
    device_->check(device_->driver().cuMemcpyHtoDAsync_v2(reinterpret_cast<CudaAddress>(to), bytes.data(), bytes.size(),
                                                          stream_.handle()),
                   "cuMemcpyHtoDAsync");
    device_->check(device_->driver().cuStreamSynchronize(stream_.handle()), "cuStreamSynchronize");
  }
  std::vector<std::byte> read(const std::byte* from, size_t num_bytes) const override {
    std::vector<std::byte> bytes(num_bytes);
    if (num_bytes == 0) return bytes;
    const OnCudaDevice on(*device_);
    device_->check(device_->driver().cuMemcpyDtoHAsync_v2(bytes.data(), reinterpret_cast<CudaAddress>(from), num_bytes,
                                                          stream_.handle()),
                   "cuMemcpyDtoHAsync");
    device_->check(device_->driver().cuStreamSynchronize(stream_.handle()), "cuStreamSynchronize");
    return bytes;
  }

 private:
  std::shared_ptr<CudaDevice> device_;
  CudaStream stream_;
  std::shared_ptr<CudaMemory> memory_;
};

/// Of a GPU, or why it cannot be used.
inline Result<std::shared_ptr<GpuPlace>> gpu_place(int index) {
  WEFT_TRY(const std::shared_ptr<CudaDevice> device, CudaDevice::open(index));
  return std::make_shared<GpuPlace>(device);
}

}  // namespace weft::suite
