#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "weft/comm/cuda/cuda_device.h"
#include "weft/kernels/sources.h"

namespace weft {

/// How many blocks a kernel has along two axes, how many threads a block, and how much shared memory a block has
/// beside what the kernel declares.
struct LaunchShape {
  int64_t blocks = 1;
  int64_t blocks_y = 1;
  int64_t threads = 1;
  int64_t threads_y = 1;
  int64_t shared_bytes = 0;
};

/// Weft's own kernels on one GPU, each compiled or taken from the cache when it is first launched.
class GpuKernels {
 public:
  /// Those of a GPU of this process; opened once. `beside`: see Nvrtc::get. An Error says why there are none: no GPU,
  /// no compiler, or an architecture that kernels are not written for (before sm_80).
  static Result<const GpuKernels*> on(int device, const std::string& beside);

  ~GpuKernels();
  GpuKernels(const GpuKernels&) = delete;
  GpuKernels& operator=(const GpuKernels&) = delete;

  int architecture() const { return architecture_; }  ///< 90 for sm_90
  int64_t num_processors() const { return num_processors_; }
  int64_t shared_bytes_of_block() const { return shared_bytes_of_block_; }  ///< at most, declared ones included

  /// Puts a kernel of a source on a stream of the GPU. Arguments are what the kernel takes, by their exact
  /// types; names are literals.
  template <typename... Arguments>
  void launch(const char* source, const char* kernel, const LaunchShape& shape, CudaStreamHandle stream,
              const Arguments&... arguments) const {
    std::array<const void*, sizeof...(Arguments)> pointers = {&arguments...};
    launch_with(source, kernel, shape, stream, const_cast<void**>(pointers.data()));
  }

 private:
  GpuKernels(std::shared_ptr<CudaDevice> device, std::string beside);
  static Result<std::unique_ptr<GpuKernels>> open(int device, const std::string& beside);

  void launch_with(const char* source, const char* kernel, const LaunchShape& shape, CudaStreamHandle stream,
                   void** arguments) const;
  /// With room for so much shared memory: what is beyond 48 KiB has to be asked for.
  CudaFunctionHandle function_of(const char* source, const char* kernel, int64_t shared_bytes) const;
  CudaFunctionHandle loaded(const char* source, const char* kernel) const;
  CudaModuleHandle module_of(const KernelSource& source) const;

  std::shared_ptr<CudaDevice> device_;
  std::string beside_;
  int architecture_ = 0;
  int64_t num_processors_ = 0;
  int64_t shared_bytes_of_block_ = 0;
  mutable std::mutex guard_;
  mutable std::map<std::string, CudaModuleHandle> modules_;
  struct Function {
    CudaFunctionHandle handle = nullptr;
    int64_t shared_bytes = 48 << 10;  ///< it may be launched with
  };
  mutable std::map<const char*, Function> functions_;  ///< by the address of their name, a literal
};

/// The machine code of a source, from the cache or compiled and kept.
Result<std::string> compiled_kernels(const KernelSource& source, int architecture, const std::string& beside);

}  // namespace weft
