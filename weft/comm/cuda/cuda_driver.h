#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "weft/base/result.h"

namespace weft {

// The functions of NVIDIA's driver library that groups and kernels need, declared here, so that every machine can build
// this and a program without a GPU does not load it.

using CudaStatus = int;  ///< 0: all is well
using CudaAddress = uint64_t;
using CudaContext = void*;
using CudaStreamHandle = void*;
using CudaEventHandle = void*;
using CudaModuleHandle = void*;
using CudaFunctionHandle = void*;

constexpr CudaStatus kCudaNotReady = 600;

struct CudaUuid {
  char bytes[16];
};

/// libcuda.so.1, as far as it is used. Names are the library's, with the version of the function that is meant.
struct CudaDriver {
  CudaStatus (*cuInit)(unsigned flags);
  CudaStatus (*cuDriverGetVersion)(int* version);
  CudaStatus (*cuGetErrorString)(CudaStatus status, const char** text);
  CudaStatus (*cuDeviceGetCount)(int* count);
  CudaStatus (*cuDeviceGet)(int* device, int index);
  CudaStatus (*cuDeviceGetName)(char* name, int length, int device);
  CudaStatus (*cuDeviceGetAttribute)(int* value, int attribute, int device);
  CudaStatus (*cuDeviceGetUuid)(CudaUuid* uuid, int device);
  CudaStatus (*cuDevicePrimaryCtxRetain)(CudaContext* context, int device);
  CudaStatus (*cuDevicePrimaryCtxRelease_v2)(int device);
  CudaStatus (*cuCtxPushCurrent_v2)(CudaContext context);
  CudaStatus (*cuCtxPopCurrent_v2)(CudaContext* context);
  CudaStatus (*cuCtxGetCurrent)(CudaContext* context);
  CudaStatus (*cuCtxSetCurrent)(CudaContext context);
  CudaStatus (*cuMemAlloc_v2)(CudaAddress* address, size_t bytes);
  CudaStatus (*cuMemFree_v2)(CudaAddress address);
  CudaStatus (*cuMemHostAlloc)(void** memory, size_t bytes, unsigned flags);
  CudaStatus (*cuMemFreeHost)(void* memory);
  CudaStatus (*cuMemcpyHtoDAsync_v2)(CudaAddress to, const void* from, size_t bytes, CudaStreamHandle stream);
  CudaStatus (*cuMemcpyDtoHAsync_v2)(void* to, CudaAddress from, size_t bytes, CudaStreamHandle stream);
  CudaStatus (*cuMemcpyDtoDAsync_v2)(CudaAddress to, CudaAddress from, size_t bytes, CudaStreamHandle stream);
  CudaStatus (*cuMemsetD8Async)(CudaAddress to, unsigned char value, size_t bytes, CudaStreamHandle stream);
  CudaStatus (*cuStreamCreate)(CudaStreamHandle* stream, unsigned flags);
  CudaStatus (*cuStreamDestroy_v2)(CudaStreamHandle stream);
  CudaStatus (*cuStreamSynchronize)(CudaStreamHandle stream);
  CudaStatus (*cuStreamWaitEvent)(CudaStreamHandle stream, CudaEventHandle event, unsigned flags);
  CudaStatus (*cuEventCreate)(CudaEventHandle* event, unsigned flags);
  CudaStatus (*cuEventDestroy_v2)(CudaEventHandle event);
  CudaStatus (*cuEventRecord)(CudaEventHandle event, CudaStreamHandle stream);
  CudaStatus (*cuEventQuery)(CudaEventHandle event);
  CudaStatus (*cuEventSynchronize)(CudaEventHandle event);
  CudaStatus (*cuModuleLoadData)(CudaModuleHandle* module, const void* image);
  CudaStatus (*cuModuleGetFunction)(CudaFunctionHandle* function, CudaModuleHandle module, const char* name);
  CudaStatus (*cuFuncSetAttribute)(CudaFunctionHandle function, int attribute, int value);
  CudaStatus (*cuLaunchKernel)(CudaFunctionHandle function, unsigned blocks_x, unsigned blocks_y, unsigned blocks_z,
                               unsigned threads_x, unsigned threads_y, unsigned threads_z, unsigned shared_bytes,
                               CudaStreamHandle stream, void** arguments, void** extra);

  /// Throws a std::runtime_error with the driver's words, unless all is well.
  void check(CudaStatus status, const char* what) const;
  std::string text_of(CudaStatus status) const;
};

/// The driver, loaded and initialized when this is first called; the same for all that call it. An Error where there is
/// no driver, it is too old, or it has no GPU to show.
Result<const CudaDriver*> cuda_driver();

/// How many GPUs this process may use: 0 without a driver.
int num_gpus();

/// For messages: "memory on cpu or on a GPU that is there (cuda:0 to cuda:7)", or what keeps GPUs from being used.
std::string memory_of_gpus_text();

}  // namespace weft
