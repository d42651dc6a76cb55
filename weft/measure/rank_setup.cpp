#include "weft/measure/rank_setup.h"

#include <ATen/core/grad_mode.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>

#include "weft/tensor/rank_threads.h"

namespace weft {

void begin_rank(at::Device device, int num_cores, int64_t ranks) {
  if (device.is_cpu()) {
    use_rank_threads(threads_per_rank(num_cores, static_cast<int>(ranks)));
  } else {
    c10::impl::getDeviceGuardImpl(device.type())->setDevice(device);
  }
}

void draw_weights(const std::vector<ParameterPtr>& parameters) {
  const at::NoGradGuard no_graph;
  for (const ParameterPtr& parameter : parameters) {
    const Initialization& init = parameter->spec.init;
    if (init.kind == Initialization::Kind::kNormal) parameter->value.normal_(0, init.deviation);
    if (init.kind == Initialization::Kind::kConstant) parameter->value.fill_(init.value);
  }
}

void free_unused_memory(at::Device device) {
  if (!device.is_cpu()) c10::getDeviceAllocator(device.type())->emptyCache();
}

}  // namespace weft
