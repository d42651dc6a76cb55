#include "weft/comm/cuda/cuda_device.h"

#include <fmt/format.h>

namespace weft {
namespace {

constexpr unsigned kNonBlocking = 1;    // CU_STREAM_NON_BLOCKING
constexpr unsigned kWithoutTiming = 2;  // CU_EVENT_DISABLE_TIMING

Result<int> device_at(const CudaDriver& driver, int index) {
  int count = 0, device = 0;
  CudaStatus status = driver.cuDeviceGetCount(&count);
  if (status == 0 && (index < 0 || index >= count)) {
    return Error{.kind = ErrorKind::kJob,
                 .problem = fmt::format("GPU {} is asked for, but this process sees {}, numbered from 0", index, count),
                 .advice = "Start at most as many ranks on a host as it has GPUs, or look at CUDA_VISIBLE_DEVICES."};
  }
  if (status == 0) status = driver.cuDeviceGet(&device, index);
  if (status == 0) return device;
  return Error{.kind = ErrorKind::kJob,
               .problem = fmt::format("GPU {} cannot be used: {}", index, driver.text_of(status))};
}

}  // namespace

Result<std::shared_ptr<CudaDevice>> CudaDevice::open(int index) {
  WEFT_TRY(const CudaDriver* driver, cuda_driver());
  WEFT_TRY(const int device, device_at(*driver, index));
  CudaContext context = nullptr;
  if (const CudaStatus status = driver->cuDevicePrimaryCtxRetain(&context, device); status != 0) {
    return Error{.kind = ErrorKind::kJob,
                 .problem = fmt::format("GPU {} cannot be used: {}", index, driver->text_of(status)),
                 .advice = "Look at what nvidia-smi says of its memory, its processes and its compute mode."};
  }
  return std::shared_ptr<CudaDevice>(new CudaDevice(*driver, index, device, context));
}

CudaDevice::~CudaDevice() {
  driver_->cuDevicePrimaryCtxRelease_v2(device_);
}

Result<GpuName> gpu_name(int index) {
  WEFT_TRY(const CudaDriver* driver, cuda_driver());
  WEFT_TRY(const int device, device_at(*driver, index));
  char name[256] = {};
  CudaUuid uuid{};
  CudaStatus status = driver->cuDeviceGetName(name, sizeof(name) - 1, device);
  if (status == 0) status = driver->cuDeviceGetUuid(&uuid, device);
  if (status != 0) {
    return Error{.kind = ErrorKind::kJob,
                 .problem = fmt::format("GPU {} does not say which it is: {}", index, driver->text_of(status))};
  }
  GpuName result{.name = name, .uuid = {}};
  for (const char byte : uuid.bytes) result.uuid += fmt::format("{:02x}", static_cast<uint8_t>(byte));
  return result;
}

OnCudaDevice::OnCudaDevice(const CudaDevice& device) : device_(device) {
  device_.check(device_.driver().cuCtxPushCurrent_v2(device_.context()), "cuCtxPushCurrent");
}

OnCudaDevice::~OnCudaDevice() {
  CudaContext popped = nullptr;
  device_.driver().cuCtxPopCurrent_v2(&popped);
}

CudaStream::CudaStream(std::shared_ptr<CudaDevice> device) : device_(std::move(device)) {
  const OnCudaDevice on(*device_);
  device_->check(device_->driver().cuStreamCreate(&handle_, kNonBlocking), "cuStreamCreate");
}

CudaStream::~CudaStream() {
  device_->driver().cuStreamDestroy_v2(handle_);
}

CudaEvent::CudaEvent(std::shared_ptr<CudaDevice> device, CudaStreamHandle stream) : device_(std::move(device)) {
  const OnCudaDevice on(*device_);
  const CudaDriver& driver = device_->driver();
  device_->check(driver.cuEventCreate(&handle_, kWithoutTiming), "cuEventCreate");
  if (const CudaStatus status = driver.cuEventRecord(handle_, stream); status != 0) {
    driver.cuEventDestroy_v2(handle_);
    device_->check(status, "cuEventRecord");
  }
}

CudaEvent::~CudaEvent() {
  device_->driver().cuEventDestroy_v2(handle_);
}

bool CudaEvent::is_done() const {
  const OnCudaDevice on(*device_);
  const CudaStatus status = device_->driver().cuEventQuery(handle_);
  if (status == kCudaNotReady) return false;
  device_->check(status, "cuEventQuery");
  return true;
}

void CudaEvent::wait() const {
  const OnCudaDevice on(*device_);
  device_->check(device_->driver().cuEventSynchronize(handle_), "cuEventSynchronize");
}

void CudaEvent::hold(CudaStreamHandle stream) const {
  const OnCudaDevice on(*device_);
  device_->check(device_->driver().cuStreamWaitEvent(stream, handle_, 0), "cuStreamWaitEvent");
}

}  // namespace weft
