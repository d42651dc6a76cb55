#pragma once

#include <algorithm>
#include <memory>

#include <c10/core/Allocator.h>
#include <c10/util/ThreadLocalDebugInfo.h>

// What tests of memory share.
namespace weft {

/// Counts the bytes of tensors that this thread makes on the CPU while it lives.
class LiveBytes {
 public:
  int64_t now() const { return counter_->bytes; }
  int64_t most() const { return counter_->most; }
  /// From here on.
  void forget_most() { counter_->most = counter_->bytes; }

 private:
  struct Counter : c10::MemoryReportingInfoBase {
    int64_t bytes = 0;
    int64_t most = 0;

    void reportMemoryUsage(void*, int64_t size, size_t, size_t, c10::Device) override {
      bytes += size;
      most = std::max(most, bytes);
    }
    bool memoryProfilingEnabled() const override { return true; }
  };

  std::shared_ptr<Counter> counter_ = std::make_shared<Counter>();
  c10::DebugInfoGuard guard_{c10::DebugInfoKind::PROFILER_STATE, counter_};
};

}  // namespace weft
