#include "weft/measure/clock_speed.h"

#include <charconv>
#include <dlfcn.h>
#include <fstream>
#include <string>

#include <fmt/format.h>

#include "weft/comm/cuda/cuda_device.h"

namespace weft {
namespace {

/// The functions of NVIDIA's management library that read clocks, declared here, so that every machine can build this.
struct ManagementLibrary {
  using Status = int;  ///< 0: all is well
  using Handle = void*;

  Status (*init)() = nullptr;
  Status (*handle_by_uuid)(const char* uuid, Handle* handle) = nullptr;
  Status (*clock_info)(Handle handle, unsigned kind, unsigned* mhz) = nullptr;

  static const ManagementLibrary* get() {
    static const std::optional<ManagementLibrary> loaded = load();
    return loaded ? &*loaded : nullptr;
  }

 private:
  static std::optional<ManagementLibrary> load() {
    void* library = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) return std::nullopt;
    ManagementLibrary found;
    const auto find = [&](auto& function, const char* name) {
      function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(library, name));
      return function != nullptr;
    };
    const bool is_complete = find(found.init, "nvmlInit_v2") &&
                             find(found.handle_by_uuid, "nvmlDeviceGetHandleByUUID") &&
                             find(found.clock_info, "nvmlDeviceGetClockInfo");
    if (!is_complete || found.init() != 0) return std::nullopt;
    return found;
  }
};

/// "GPU-01234567-89ab-...", as the library spells it, of hexadecimal digits.
std::string spelled_uuid(const std::string& digits) {
  constexpr size_t kDigits = 32;
  if (digits.size() != kDigits) return {};
  return fmt::format("GPU-{}-{}-{}-{}-{}", digits.substr(0, 8), digits.substr(8, 4), digits.substr(12, 4),
                     digits.substr(16, 4), digits.substr(20));
}

std::optional<double> gpu_clock_mhz(int index) {
  const ManagementLibrary* library = ManagementLibrary::get();
  if (library == nullptr) return std::nullopt;
  const auto name = gpu_name(index);
  if (!name) return std::nullopt;
  ManagementLibrary::Handle handle = nullptr;
  if (library->handle_by_uuid(spelled_uuid(name->uuid).c_str(), &handle) != 0) return std::nullopt;
  constexpr unsigned kMultiprocessors = 1;
  unsigned mhz = 0;
  if (library->clock_info(handle, kMultiprocessors, &mhz) != 0) return std::nullopt;
  return mhz;
}

std::optional<double> processor_clock_mhz() {
  std::ifstream lines("/proc/cpuinfo");
  double sum = 0;
  int cores = 0;
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with("cpu MHz")) continue;
    const size_t begin = line.find_first_of("0123456789");
    if (begin == std::string::npos) continue;
    double mhz = 0;
    std::from_chars(line.data() + begin, line.data() + line.size(), mhz);
    sum += mhz;
    ++cores;
  }
  if (cores == 0 || sum <= 0) return std::nullopt;
  return sum / cores;
}

}  // namespace

std::optional<double> clock_mhz(at::Device device) {
  return device.is_cpu() ? processor_clock_mhz() : gpu_clock_mhz(device.has_index() ? device.index() : 0);
}

}  // namespace weft
