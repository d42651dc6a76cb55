#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "weft/comm/cuda/cuda_device.h"

namespace weft {

/// Memory of a GPU, or of the host where a GPU reaches it directly, kept for the next time: having it is slow, and
/// giving it back waits for the GPU. Several threads may use it.
class CudaMemory : public std::enable_shared_from_this<CudaMemory> {
 public:
  enum class Kind { kDevice, kPinned };
  static std::shared_ptr<CudaMemory> create(std::shared_ptr<CudaDevice> device, Kind kind) {
    return std::shared_ptr<CudaMemory>(new CudaMemory(std::move(device), kind));
  }
  ~CudaMemory();
  CudaMemory(const CudaMemory&) = delete;
  CudaMemory& operator=(const CudaMemory&) = delete;

  /// A piece of it, which goes back when this is destroyed. Whoever destroys it knows that nobody touches it any more.
  class Block {
   public:
    Block() = default;
    Block(Block&& other) noexcept { *this = std::move(other); }
    Block& operator=(Block&& other) noexcept {
      std::swap(owner_, other.owner_);
      std::swap(data_, other.data_);
      std::swap(bytes_, other.bytes_);
      return *this;
    }
    ~Block() {
      if (owner_) owner_->give(data_, bytes_);
    }
    std::byte* data() const { return data_; }
    /// It is never used again: somebody may still touch it.
    void forget() { owner_.reset(); }

   private:
    friend class CudaMemory;
    std::shared_ptr<CudaMemory> owner_;
    std::byte* data_ = nullptr;
    size_t bytes_ = 0;
  };

  /// At least so many bytes. Throws std::runtime_error where there is no memory left.
  Block take(int64_t num_bytes);

 private:
  CudaMemory(std::shared_ptr<CudaDevice> device, Kind kind) : device_(std::move(device)), kind_(kind) {}
  void give(std::byte* data, size_t bytes);
  std::byte* allocate(size_t bytes) const;
  void free(std::byte* data) const;

  std::shared_ptr<CudaDevice> device_;
  Kind kind_;
  std::mutex mutex_;
  std::map<size_t, std::vector<std::byte*>> free_;  ///< by size
};

}  // namespace weft
