#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>

namespace weft {

/// When a search has to end: at a time, or when a flag says so.
class Deadline {
 public:
  using Clock = std::chrono::steady_clock;

  Deadline() = default;
  Deadline(Clock::time_point time, const std::atomic<bool>* stop = nullptr) : time_(time), stop_(stop) {}
  /// So many seconds from now.
  explicit Deadline(double seconds, const std::atomic<bool>* stop = nullptr)
      : Deadline(Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds)),
                 stop) {}

  bool is_over() const { return (stop_ != nullptr && stop_->load(std::memory_order_relaxed)) || Clock::now() >= time_; }
  /// Until the time; negative behind it.
  Clock::duration left() const { return time_ - Clock::now(); }

 private:
  Clock::time_point time_ = Clock::time_point::max();
  const std::atomic<bool>* stop_ = nullptr;
};

/// One that is asked in inner loops, and looks at the clock now and then.
class RareDeadline {
 public:
  explicit RareDeadline(const Deadline& deadline) : deadline_(deadline) {}

  bool is_over() { return ++num_asked_ % 64 == 0 && deadline_.is_over(); }

 private:
  const Deadline& deadline_;
  int64_t num_asked_ = 0;
};

}  // namespace weft
