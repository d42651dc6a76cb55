#pragma once

#include <cstdint>
#include <deque>
#include <functional>

namespace weft {

/// Weight gradients that a backward left for later: the W of zero-bubble schedules. Each entry holds what it needs
/// (input and output gradient) until it runs.
class WeightGradients {
 public:
  void add(std::function<void()> task) { tasks_.push_back(std::move(task)); }
  size_t size() const { return tasks_.size(); }
  /// Runs all, oldest first, and frees each as it ends.
  void run();

 private:
  std::deque<std::function<void()>> tasks_;
};

}  // namespace weft
