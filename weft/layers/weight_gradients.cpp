#include "weft/layers/weight_gradients.h"

namespace weft {

void WeightGradients::run() {
  while (!tasks_.empty()) {
    const std::function<void()> task = std::move(tasks_.front());
    tasks_.pop_front();
    task();
  }
}

}  // namespace weft
