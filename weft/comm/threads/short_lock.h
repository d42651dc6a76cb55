#pragma once

#include <atomic>
#include <thread>

namespace weft {

/// Lets a core rest for a moment while a thread spins.
inline void pause_briefly() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#else
  std::this_thread::yield();
#endif
}

/// A mutex for a few instructions at a time: a thread that finds it taken spins, as sleeping would take far longer than
/// waiting, and then yields, as its holder may need the core.
class ShortLock {
 public:
  void lock() {
    constexpr int kSpins = 100;
    for (int i = 0; is_taken_.exchange(true, std::memory_order_acquire); ++i) {
      i < kSpins ? pause_briefly() : std::this_thread::yield();
    }
  }
  void unlock() { is_taken_.store(false, std::memory_order_release); }

 private:
  std::atomic<bool> is_taken_{false};
};

}  // namespace weft
