#pragma once

#include <map>
#include <memory>
#include <mutex>

#include "weft/comm/cuda/cuda_device.h"
#include "weft/comm/cuda/cuda_memory.h"
#include "weft/comm/operation.h"

namespace weft {

/// What all staged operations of one GPU share: a stream each way, and memory of the host.
struct StagingDevice {
  std::shared_ptr<CudaDevice> device;
  CudaStream to_host;
  CudaStream from_host;
  std::shared_ptr<CudaMemory> pinned;

  explicit StagingDevice(const std::shared_ptr<CudaDevice>& device_in)
      : device(device_in),
        to_host(device),
        from_host(device),
        pinned(CudaMemory::create(device, CudaMemory::Kind::kPinned)) {}
};

/// One operation on GPU memory as MPI sees it: on copies in the host's memory. The copy to the host comes after what
/// the caller's stream had when this was made, and the way back is over when is_back says so.
class StagedOperation {
 public:
  /// `rank` is this rank's place in the group. Begins the copy to the host.
  StagedOperation(std::shared_ptr<StagingDevice> device, const Operation& operation, int64_t rank);
  ~StagedOperation();
  StagedOperation(const StagedOperation&) = delete;
  StagedOperation& operator=(const StagedOperation&) = delete;

  /// The same operation on the host's memory.
  const Operation& on_host() const { return host_; }
  bool is_on_host() const { return !copied_in_ || copied_in_->is_done(); }
  void start_back();
  bool is_back();
  /// Returns when the GPU touches the caller's memory no more, whatever has been done so far.
  void finish() noexcept;

 private:
  std::shared_ptr<StagingDevice> device_;
  Operation operation_;
  Operation host_;
  CudaMemory::Block in_, out_;
  bool comes_back_ = false;
  std::unique_ptr<CudaEvent> copied_in_, copied_out_;
  std::unique_ptr<CudaEvent> before_out_;  ///< what the caller's stream may still do with the output's memory
  bool is_complete_ = false;
};

/// GPUs of which MPI ranks stage memory, opened when they are first used.
class MpiStaging {
 public:
  std::shared_ptr<StagedOperation> stage(const Operation& operation, int64_t rank);

 private:
  std::mutex mutex_;
  std::map<int, std::shared_ptr<StagingDevice>> devices_;
};

}  // namespace weft
