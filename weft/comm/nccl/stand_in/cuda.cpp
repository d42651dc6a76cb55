// A stand-in for NVIDIA's libcuda.so.1 on machines without a GPU, for tests: a GPU's memory is the host's, and what is
// put on a stream is done at once. WEFT_STAND_IN_GPUS is how many GPUs it shows, each with a uuid of its own.
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>

#define STAND_IN extern "C" __attribute__((visibility("default"))) int

namespace {

constexpr int kInvalidValue = 1, kInvalidContext = 201;

std::mutex allocations_mutex;
std::map<uintptr_t, size_t> allocations;  // device memory: begin and size

int num_gpus() {
  const char* text = std::getenv("WEFT_STAND_IN_GPUS");
  return text == nullptr ? 1 : std::atoi(text);
}

thread_local int depth = 0;  // of contexts that the thread has pushed

bool is_device_memory(uint64_t address, size_t bytes) {
  const std::lock_guard lock(allocations_mutex);
  auto after = allocations.upper_bound(address);
  if (after == allocations.begin()) return false;
  --after;
  return address + bytes <= after->first + after->second;
}

}  // namespace

STAND_IN cuInit(unsigned) {
  return 0;
}
STAND_IN cuDriverGetVersion(int* version) {
  *version = 13000;
  return 0;
}
STAND_IN cuGetErrorString(int status, const char** text) {
  *text = status == kInvalidContext ? "no context is current" : "the stand-in refuses that";
  return 0;
}
STAND_IN cuDeviceGetCount(int* count) {
  *count = num_gpus();
  return 0;
}
STAND_IN cuDeviceGet(int* device, int index) {
  *device = index;
  return 0;
}
STAND_IN cuDeviceGetName(char* name, int length, int) {
  std::strncpy(name, "a stand-in", static_cast<size_t>(length));
  return 0;
}
STAND_IN cuDeviceGetAttribute(int* value, int, int) {
  *value = 0;
  return 0;
}
STAND_IN cuModuleLoadData(void**, const void*) {
  return kInvalidValue;
}
STAND_IN cuModuleGetFunction(void**, void*, const char*) {
  return kInvalidValue;
}
STAND_IN cuFuncSetAttribute(void*, int, int) {
  return kInvalidValue;
}
STAND_IN cuLaunchKernel(void*, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void*, void**,
                        void**) {
  return kInvalidValue;
}
STAND_IN cuDeviceGetUuid(char* uuid, int device) {
  std::memset(uuid, device + 1, 16);
  return 0;
}
STAND_IN cuDevicePrimaryCtxRetain(void** context, int device) {
  static char contexts[64];
  *context = contexts + device;
  return 0;
}
STAND_IN cuDevicePrimaryCtxRelease_v2(int) {
  return 0;
}
STAND_IN cuCtxPushCurrent_v2(void*) {
  ++depth;
  return 0;
}
STAND_IN cuCtxPopCurrent_v2(void**) {
  return --depth >= 0 ? 0 : kInvalidContext;
}
STAND_IN cuCtxGetCurrent(void** context) {
  *context = nullptr;
  return 0;
}
STAND_IN cuCtxSetCurrent(void*) {
  return 0;
}
STAND_IN cuMemAlloc_v2(uint64_t* address, size_t bytes) {
  if (depth == 0) return kInvalidContext;
  if (bytes == 0) return kInvalidValue;
  *address = reinterpret_cast<uint64_t>(std::malloc(bytes));
  const std::lock_guard lock(allocations_mutex);
  allocations[*address] = bytes;
  return 0;
}
STAND_IN cuMemFree_v2(uint64_t address) {
  {
    const std::lock_guard lock(allocations_mutex);
    if (allocations.erase(address) == 0) return kInvalidValue;
  }
  std::free(reinterpret_cast<void*>(address));
  return 0;
}
STAND_IN cuMemHostAlloc(void** memory, size_t bytes, unsigned) {
  if (depth == 0) return kInvalidContext;
  *memory = std::malloc(bytes);
  return 0;
}
STAND_IN cuMemFreeHost(void* memory) {
  std::free(memory);
  return 0;
}
STAND_IN cuMemcpyHtoDAsync_v2(uint64_t to, const void* from, size_t bytes, void*) {
  if (depth == 0) return kInvalidContext;
  if (!is_device_memory(to, bytes)) return kInvalidValue;
  std::memcpy(reinterpret_cast<void*>(to), from, bytes);
  return 0;
}
STAND_IN cuMemcpyDtoHAsync_v2(void* to, uint64_t from, size_t bytes, void*) {
  if (depth == 0) return kInvalidContext;
  if (!is_device_memory(from, bytes)) return kInvalidValue;
  std::memcpy(to, reinterpret_cast<const void*>(from), bytes);
  return 0;
}
STAND_IN cuMemcpyDtoDAsync_v2(uint64_t to, uint64_t from, size_t bytes, void*) {
  if (!is_device_memory(to, bytes) || !is_device_memory(from, bytes)) return kInvalidValue;
  std::memmove(reinterpret_cast<void*>(to), reinterpret_cast<const void*>(from), bytes);
  return 0;
}
STAND_IN cuMemsetD8Async(uint64_t to, unsigned char value, size_t bytes, void*) {
  if (!is_device_memory(to, bytes)) return kInvalidValue;
  std::memset(reinterpret_cast<void*>(to), value, bytes);
  return 0;
}
STAND_IN cuStreamCreate(void** stream, unsigned) {
  if (depth == 0) return kInvalidContext;
  *stream = std::malloc(1);
  return 0;
}
STAND_IN cuStreamDestroy_v2(void* stream) {
  std::free(stream);
  return 0;
}
STAND_IN cuStreamSynchronize(void*) {
  return 0;
}
STAND_IN cuStreamWaitEvent(void*, void* event, unsigned) {
  return event == nullptr ? kInvalidValue : 0;
}
STAND_IN cuEventCreate(void** event, unsigned) {
  if (depth == 0) return kInvalidContext;
  *event = std::malloc(1);
  return 0;
}
STAND_IN cuEventDestroy_v2(void* event) {
  std::free(event);
  return 0;
}
STAND_IN cuEventRecord(void*, void*) {
  return 0;
}
STAND_IN cuEventQuery(void*) {
  return 0;
}
STAND_IN cuEventSynchronize(void*) {
  return 0;
}
