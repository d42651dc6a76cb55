#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

namespace weft {

/// What a rank holds in CPU tensors: what its threads allocate, until it is freed, by whomever.
class MemoryCount {
 public:
  int64_t current_bytes() const { return current_bytes_; }
  /// The most since this was made, or since the peak was forgotten.
  int64_t peak_bytes() const { return peak_bytes_; }
  void forget_peak() { peak_bytes_ = current_bytes(); }

  void add(int64_t bytes);
  void remove(int64_t bytes) { current_bytes_ -= bytes; }

 private:
  std::atomic<int64_t> current_bytes_{0};
  std::atomic<int64_t> peak_bytes_{0};
};

/// While this lives, what the calling thread allocates is added to a count, or to none. The first in a process has
/// LibTorch allocate through Weft from then on; tensors that are there already are never counted. Memory that
/// mathematical libraries allocate by themselves is not, either.
class CountedThread {
 public:
  explicit CountedThread(std::shared_ptr<MemoryCount> count);
  ~CountedThread();
  CountedThread(const CountedThread&) = delete;
  CountedThread& operator=(const CountedThread&) = delete;

 private:
  std::shared_ptr<MemoryCount> before_;
};

/// The calling thread's count, if it has one.
std::shared_ptr<MemoryCount> current_memory_count();

}  // namespace weft
