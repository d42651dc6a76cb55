#include "weft/engine/rank_memory.h"

#include <c10/core/CachingDeviceAllocator.h>

namespace weft {

RankMemory::RankMemory(at::Device device)
    : device_(device), count_(std::make_shared<MemoryCount>()), counted_(count_) {}

void RankMemory::forget_peak() {
  count_->forget_peak();
  if (!device_.is_cpu()) c10::getDeviceAllocator(device_.type())->resetPeakStats(device_.index());
}

int64_t RankMemory::peak_bytes() const {
  if (device_.is_cpu()) return count_->peak_bytes();
  constexpr auto kAll = static_cast<size_t>(c10::CachingAllocator::StatType::AGGREGATE);
  return c10::getDeviceAllocator(device_.type())->getDeviceStats(device_.index()).allocated_bytes[kAll].peak;
}

}  // namespace weft
