#include "weft/engine/rank_device.h"

#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <fmt/format.h>

#include "weft/engine/tensor_options.h"

namespace weft {

Result<at::Device> open_rank_device(World& world, const std::string& name) {
  if (name == "cpu") return at::Device(at::kCPU);
  // First, so that nobody starts processes for GPUs that are not there.
  auto opened = open_device(name);
  if (!opened) {
    Error error = std::move(opened).error();
    if (error.source == "--device") error.advice = "Write device: cpu, or leave it out.";
    return error;
  }
  at::Device device = *opened;
  const std::optional<Device> given = world.gpu();
  if (!given && world.size() > 1) {
    return Error{.field = "device",
                 .problem = fmt::format("is cuda, but the plan's {} ranks are threads of one process", world.size()),
                 .advice = fmt::format("On GPUs a rank is a process: start it with mpirun -n {}.", world.size())};
  }
  if (given) device = at::Device(at::kCUDA, static_cast<c10::DeviceIndex>(given->index));
  c10::impl::getDeviceGuardImpl(at::kCUDA)->setDevice(device);
  return device;
}

}  // namespace weft
