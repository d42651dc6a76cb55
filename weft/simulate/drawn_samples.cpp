#include "weft/simulate/drawn_samples.h"

namespace weft {

std::vector<SampleLoad> drawn_batch(const Plan& plan, int64_t index) {
  const auto seed = static_cast<uint64_t>(plan.batch_seed) * 1'000'003u + static_cast<uint64_t>(index);
  SampleDrawer drawer(plan.model, plan.workload, seed);
  std::vector<SampleLoad> batch;
  batch.reserve(static_cast<size_t>(plan.workload.global_batch_samples));
  for (int64_t i = 0; i < plan.workload.global_batch_samples; ++i) batch.push_back(drawer.draw());
  return batch;
}

const std::vector<SampleLoad>& DrawnSamples::batch(int64_t index) {
  while (std::ssize(batches_) <= index) batches_.push_back(drawn_batch(plan_, std::ssize(batches_)));
  return batches_[static_cast<size_t>(index)];
}

}  // namespace weft
