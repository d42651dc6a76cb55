#include "weft/simulate/drawn_samples.h"

namespace weft {

const std::vector<SampleLoad>& DrawnSamples::batch(int64_t index) {
  while (std::ssize(batches_) <= index) {
    const auto seed = static_cast<uint64_t>(plan_.batch_seed) * 1'000'003u + static_cast<uint64_t>(batches_.size());
    SampleDrawer drawer(plan_.model, plan_.workload, seed);
    std::vector<SampleLoad>& batch = batches_.emplace_back();
    batch.reserve(static_cast<size_t>(plan_.workload.global_batch_samples));
    for (int64_t i = 0; i < plan_.workload.global_batch_samples; ++i) batch.push_back(drawer.draw());
  }
  return batches_[static_cast<size_t>(index)];
}

}  // namespace weft
