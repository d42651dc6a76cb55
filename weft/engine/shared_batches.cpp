#include "weft/engine/shared_batches.h"

namespace weft {

std::shared_future<LocalBatch> SharedBatches::get(const Share& share, Number number,
                                                  const std::function<LocalBatch()>& make) {
  const std::lock_guard lock(mutex_);
  Numbered& newest = newest_[share];
  if (newest.number != number) newest = {number, std::async(std::launch::async, make).share()};
  return newest.batch;
}

Result<RunSamples> SharedBatches::samples(const std::function<Result<RunSamples>()>& open) {
  const std::lock_guard lock(opening_);
  if (!samples_) samples_ = open();
  return *samples_;
}

}  // namespace weft
