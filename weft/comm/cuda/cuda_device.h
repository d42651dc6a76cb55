#pragma once

#include <memory>
#include <string>
#include <vector>

#include "weft/comm/cuda/cuda_driver.h"

namespace weft {

/// One GPU of this process: the context that CUDA's runtime, and so LibTorch, uses too.
class CudaDevice {
 public:
  /// An Error where there is no such GPU, or it cannot be used.
  static Result<std::shared_ptr<CudaDevice>> open(int index);
  ~CudaDevice();
  CudaDevice(const CudaDevice&) = delete;
  CudaDevice& operator=(const CudaDevice&) = delete;

  const CudaDriver& driver() const { return *driver_; }
  int index() const { return index_; }
  CudaContext context() const { return context_; }
  void check(CudaStatus status, const char* what) const { driver_->check(status, what); }

 private:
  CudaDevice(const CudaDriver& driver, int index, int device, CudaContext context)
      : driver_(&driver), index_(index), device_(device), context_(context) {}

  const CudaDriver* driver_;
  int index_;
  int device_;  ///< the driver's number
  CudaContext context_;
};

/// "NVIDIA H200", and what tells it from every other GPU of the world, as hexadecimal digits. Makes no context.
struct GpuName {
  std::string name;
  std::string uuid;
};
Result<GpuName> gpu_name(int index);

/// While one exists, the calling thread works on a device; before and after, on what it did.
class OnCudaDevice {
 public:
  explicit OnCudaDevice(const CudaDevice& device);
  ~OnCudaDevice();
  OnCudaDevice(const OnCudaDevice&) = delete;
  OnCudaDevice& operator=(const OnCudaDevice&) = delete;

 private:
  const CudaDevice& device_;
};

/// Work of a GPU in order. It does not wait for the default stream, nor that for it.
class CudaStream {
 public:
  explicit CudaStream(std::shared_ptr<CudaDevice> device);
  ~CudaStream();
  CudaStream(const CudaStream&) = delete;
  CudaStream& operator=(const CudaStream&) = delete;

  CudaStreamHandle handle() const { return handle_; }

 private:
  std::shared_ptr<CudaDevice> device_;
  CudaStreamHandle handle_ = nullptr;
};

/// A mark on a stream: all that was put there before is done when it is.
class CudaEvent {
 public:
  /// Puts the mark on the stream, after what is there now.
  CudaEvent(std::shared_ptr<CudaDevice> device, CudaStreamHandle stream);
  ~CudaEvent();
  CudaEvent(const CudaEvent&) = delete;
  CudaEvent& operator=(const CudaEvent&) = delete;

  /// Throws what the GPU complains of, here as in wait.
  bool is_done() const;
  void wait() const;
  /// What is put on the stream from now on comes after the mark.
  void hold(CudaStreamHandle stream) const;

 private:
  std::shared_ptr<CudaDevice> device_;
  CudaEventHandle handle_ = nullptr;
};

}  // namespace weft
