#include "weft/kernels/gpu_kernels.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <stdexcept>

#include <fmt/format.h>

#include "weft/base/check.h"
#include "weft/kernels/kernel_cache.h"
#include "weft/kernels/nvrtc.h"

namespace weft {
namespace {

constexpr int kOldestArchitecture = 80;  // bf16 conversions are instructions from here on

// The driver's numbers of a device's attributes.
constexpr int kMajorAttribute = 75;
constexpr int kMinorAttribute = 76;
constexpr int kProcessorsAttribute = 16;
constexpr int kSharedBytesOfBlockAttribute = 97;
// And of a function's.
constexpr int kSharedBytesAttribute = 8;

}  // namespace

Result<std::string> compiled_kernels(const KernelSource& source, int architecture, const std::string& beside) {
  WEFT_TRY(const Nvrtc* nvrtc, Nvrtc::get(beside));
  const std::string text = fmt::format("{}{}", kCommonSource, source.text);
  const std::string key = fmt::format("nvrtc {} sm_{} {}\n{}", nvrtc->version(), architecture, source.name, text);
  const KernelCache cache = KernelCache::of_user();
  if (std::optional<std::string> kept = cache.find(key)) return *std::move(kept);
  WEFT_TRY(std::string code, nvrtc->compile(source.name, text, architecture));
  cache.keep(key, code);
  return code;
}

GpuKernels::GpuKernels(std::shared_ptr<CudaDevice> device, std::string beside)
    : device_(std::move(device)), beside_(std::move(beside)) {}

GpuKernels::~GpuKernels() = default;  // modules end with the context

Result<std::unique_ptr<GpuKernels>> GpuKernels::open(int device, const std::string& beside) {
  WEFT_TRY(std::shared_ptr<CudaDevice> opened, CudaDevice::open(device));
  std::unique_ptr<GpuKernels> kernels(new GpuKernels(opened, beside));
  const CudaDriver& driver = opened->driver();
  int handle = 0;
  driver.check(driver.cuDeviceGet(&handle, device), "cuDeviceGet");
  const auto attribute = [&](int which) {
    int value = 0;
    driver.check(driver.cuDeviceGetAttribute(&value, which, handle), "cuDeviceGetAttribute");
    return value;
  };
  kernels->architecture_ = attribute(kMajorAttribute) * 10 + attribute(kMinorAttribute);
  kernels->num_processors_ = attribute(kProcessorsAttribute);
  kernels->shared_bytes_of_block_ = attribute(kSharedBytesOfBlockAttribute);
  if (kernels->architecture_ < kOldestArchitecture) {
    return Error{.kind = ErrorKind::kJob,
                 .source = fmt::format("cuda:{}", device),
                 .problem = fmt::format("own kernels need sm_{} or later, this GPU is sm_{}", kOldestArchitecture,
                                        kernels->architecture_),
                 .advice = "Training goes on with LibTorch's kernels, which are slower."};
  }
  // An architecture that the compiler does not know shows with the smallest source, before anything relies on it.
  const auto found = std::find_if(kernel_sources().begin(), kernel_sources().end(),
                                  [](const KernelSource& source) { return std::strcmp(source.name, "column") == 0; });
  if (const Result<std::string> code = compiled_kernels(*found, kernels->architecture_, beside); !code)
    return code.error();
  return kernels;
}

Result<const GpuKernels*> GpuKernels::on(int device, const std::string& beside) {
  static std::mutex guard;
  static std::map<int, Result<std::unique_ptr<GpuKernels>>> opened;
  const std::lock_guard lock(guard);
  auto found = opened.find(device);
  if (found == opened.end()) found = opened.emplace(device, open(device, beside)).first;
  if (!found->second) return found->second.error();
  return (*found->second).get();
}

CudaModuleHandle GpuKernels::module_of(const KernelSource& source) const {
  const auto [found, is_new] = modules_.try_emplace(source.name, nullptr);
  if (!is_new) return found->second;
  const Result<std::string> code = compiled_kernels(source, architecture_, beside_);
  if (!code) {
    modules_.erase(found);
    throw std::runtime_error(code.error().message());
  }
  const OnCudaDevice here(*device_);
  device_->check(device_->driver().cuModuleLoadData(&found->second, code->data()), "cuModuleLoadData");
  return found->second;
}

CudaFunctionHandle GpuKernels::loaded(const char* source, const char* kernel) const {
  for (const KernelSource& candidate : kernel_sources()) {
    if (std::strcmp(candidate.name, source) != 0) continue;
    CudaFunctionHandle function = nullptr;
    device_->check(device_->driver().cuModuleGetFunction(&function, module_of(candidate), kernel), kernel);
    return function;
  }
  WEFT_CHECK(false, "no source of kernels is called {}", source);
}

CudaFunctionHandle GpuKernels::function_of(const char* source, const char* kernel, int64_t shared_bytes) const {
  const std::lock_guard lock(guard_);
  auto found = functions_.find(kernel);
  if (found == functions_.end()) found = functions_.emplace(kernel, Function{.handle = loaded(source, kernel)}).first;
  Function& function = found->second;
  if (shared_bytes > function.shared_bytes) {
    device_->check(
        device_->driver().cuFuncSetAttribute(function.handle, kSharedBytesAttribute, static_cast<int>(shared_bytes)),
        kernel);
    function.shared_bytes = shared_bytes;
  }
  return function.handle;
}

void GpuKernels::launch_with(const char* source, const char* kernel, const LaunchShape& shape, CudaStreamHandle stream,
                             void** arguments) const {
  const auto number = [](int64_t value) { return static_cast<unsigned>(value); };
  const CudaFunctionHandle function = function_of(source, kernel, shape.shared_bytes);
  const CudaDriver& driver = device_->driver();
  // Launches follow each other on a thread that LibTorch works on, too, which leaves the context as it is. A thread
  // without one is given this, as CUDA's runtime would do it.
  CudaContext current = nullptr;
  device_->check(driver.cuCtxGetCurrent(&current), "cuCtxGetCurrent");
  std::optional<OnCudaDevice> here;
  if (current == nullptr)
    device_->check(driver.cuCtxSetCurrent(device_->context()), "cuCtxSetCurrent");
  else if (current != device_->context())
    here.emplace(*device_);
  device_->check(
      driver.cuLaunchKernel(function, number(shape.blocks), number(shape.blocks_y), 1, number(shape.threads),
                            number(shape.threads_y), 1, number(shape.shared_bytes), stream, arguments, nullptr),
      kernel);
}

}  // namespace weft
