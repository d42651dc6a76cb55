#include "weft/search/least_states.h"

#include <algorithm>

#include "weft/base/units.h"
#include "weft/cost/state_cost.h"
#include "weft/meaning/trainable.h"

namespace weft {

double least_states_gib(const Plan& problem) {
  const PrecisionPlan& precision = problem.precision;
  // ZeRO's stages sum gradients in one of these.
  const double gradient_bytes = std::min(num_bytes(precision.reduce), num_bytes(precision.master));
  const double trained_bytes = gradient_bytes + optimizer_bytes(precision) * (1 - problem.offload.optimizer);
  const Trainable trainable(problem);
  double bytes = 0;
  for (const Module& module : problem.model.modules) {
    bytes += static_cast<double>(num_parameters(module)) * num_bytes(precision.compute);
    for (int64_t place = 0; place < num_blocks(module); ++place) {
      const LocalParameters trained = trainable.trained_parameters(module.kind, place, {});
      bytes += static_cast<double>(trained.total()) * trained_bytes;
    }
  }
  return bytes / kGiB / static_cast<double>(problem.cluster.num_devices());
}

bool exceeds_all_devices(const Plan& problem) {
  const ClusterDevice& device = problem.cluster.device;
  return least_states_gib(problem) > device.memory_gib - device.reserved_memory_gib;
}

}  // namespace weft
