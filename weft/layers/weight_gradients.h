#pragma once

#include <cstdint>
#include <deque>
#include <functional>

namespace weft {

/// Weight gradients that a backward left for later: the W of zero-bubble schedules. Each entry holds what it needs
/// (input and output gradient) until it runs.
class WeightGradients {
 public:
  void add(std::function<void()> task) {
    if (leaves_nothing_) return task();
    tasks_.push_back(std::move(task));
  }
  /// From now on what is added runs at once: the backward turned out to be one with its weights, whose rows a cache
  /// still has.
  void leave_nothing() { leaves_nothing_ = true; }
  size_t size() const { return tasks_.size(); }
  /// Runs all, oldest first, and frees each as it ends.
  void run();

 private:
  std::deque<std::function<void()>> tasks_;
  bool leaves_nothing_ = false;
};

}  // namespace weft
