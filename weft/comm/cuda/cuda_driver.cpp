#include "weft/comm/cuda/cuda_driver.h"

#include <dlfcn.h>
#include <stdexcept>

#include <fmt/format.h>

namespace weft {
namespace {

constexpr char kLibrary[] = "libcuda.so.1";

Error no_gpu(const std::string& problem, const std::string& advice) {
  return {.kind = ErrorKind::kJob, .source = kLibrary, .problem = problem, .advice = advice};
}

Result<CudaDriver> load() {
  void* library = dlopen(kLibrary, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    return no_gpu(fmt::format("NVIDIA's driver cannot be loaded: {}", dlerror()),
                  "Run on a machine with an NVIDIA GPU and its driver, or without a GPU.");
  }
  CudaDriver driver{};
  const char* missing = nullptr;
  const auto get = [&](auto& function, const char* name) {
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(library, name));
    if (function == nullptr && missing == nullptr) missing = name;
  };
#define WEFT_GET(name) get(driver.name, #name)
  WEFT_GET(cuInit);
  WEFT_GET(cuDriverGetVersion);
  WEFT_GET(cuGetErrorString);
  WEFT_GET(cuDeviceGetCount);
  WEFT_GET(cuDeviceGet);
  WEFT_GET(cuDeviceGetName);
  WEFT_GET(cuDeviceGetAttribute);
  // Where only the second version is left, parts of a GPU (MIG) have uuids of their own.
  driver.cuDeviceGetUuid = reinterpret_cast<decltype(driver.cuDeviceGetUuid)>(dlsym(library, "cuDeviceGetUuid"));
  if (driver.cuDeviceGetUuid == nullptr) get(driver.cuDeviceGetUuid, "cuDeviceGetUuid_v2");
  WEFT_GET(cuDevicePrimaryCtxRetain);
  WEFT_GET(cuDevicePrimaryCtxRelease_v2);
  WEFT_GET(cuCtxPushCurrent_v2);
  WEFT_GET(cuCtxPopCurrent_v2);
  WEFT_GET(cuCtxGetCurrent);
  WEFT_GET(cuCtxSetCurrent);
  WEFT_GET(cuMemAlloc_v2);
  WEFT_GET(cuMemFree_v2);
  WEFT_GET(cuMemHostAlloc);
  WEFT_GET(cuMemFreeHost);
  WEFT_GET(cuMemcpyHtoDAsync_v2);
  WEFT_GET(cuMemcpyDtoHAsync_v2);
  WEFT_GET(cuMemcpyDtoDAsync_v2);
  WEFT_GET(cuMemsetD8Async);
  WEFT_GET(cuStreamCreate);
  WEFT_GET(cuStreamDestroy_v2);
  WEFT_GET(cuStreamSynchronize);
  WEFT_GET(cuStreamWaitEvent);
  WEFT_GET(cuEventCreate);
  WEFT_GET(cuEventDestroy_v2);
  WEFT_GET(cuEventRecord);
  WEFT_GET(cuEventQuery);
  WEFT_GET(cuEventSynchronize);
  WEFT_GET(cuModuleLoadData);
  WEFT_GET(cuModuleGetFunction);
  WEFT_GET(cuFuncSetAttribute);
  WEFT_GET(cuLaunchKernel);
#undef WEFT_GET
  if (missing != nullptr) {
    return no_gpu(fmt::format("NVIDIA's driver has no function {}", missing),
                  "Install a driver of the CUDA 11 time or later.");
  }
  if (const CudaStatus status = driver.cuInit(0); status != 0) {
    return no_gpu(fmt::format("NVIDIA's driver does not start: {}", driver.text_of(status)),
                  "Look at what nvidia-smi says and at CUDA_VISIBLE_DEVICES, or run without a GPU.");
  }
  int count = 0;
  if (const CudaStatus status = driver.cuDeviceGetCount(&count); status != 0 || count == 0) {
    return no_gpu(status != 0 ? driver.text_of(status) : "the driver shows no GPU",
                  "Look at what nvidia-smi says and at CUDA_VISIBLE_DEVICES, or run without a GPU.");
  }
  return driver;
}

}  // namespace

void CudaDriver::check(CudaStatus status, const char* what) const {
  if (status != 0) throw std::runtime_error(fmt::format("{}: {}", what, text_of(status)));
}

std::string CudaDriver::text_of(CudaStatus status) const {
  const char* text = nullptr;
  if (cuGetErrorString(status, &text) != 0 || text == nullptr) text = "an error that the driver has no words for";
  return fmt::format("{} (CUDA error {})", text, status);
}

Result<const CudaDriver*> cuda_driver() {
  static const Result<CudaDriver> driver = load();
  if (!driver) return driver.error();
  return &*driver;
}

int num_gpus() {
  const auto driver = cuda_driver();
  int count = 0;
  if (driver) (*driver)->check((*driver)->cuDeviceGetCount(&count), "cuDeviceGetCount");
  return count;
}

std::string memory_of_gpus_text() {
  const auto driver = cuda_driver();
  if (!driver) return fmt::format("memory on cpu, since no GPU can be used: {}", driver.error().message());
  return fmt::format("memory on cpu or on a GPU that is there (cuda:0 to cuda:{})", num_gpus() - 1);
}

}  // namespace weft
