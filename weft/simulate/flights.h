#pragma once

#include <map>
#include <vector>

#include "weft/cost/counted_tensor.h"

namespace weft {

/// Tensors on their way to other ranks, or from them. When they arrive is for those ranks to say.
class Flights {
 public:
  void add(CountedTensor tensor) { tensors_.push_back(std::move(tensor)); }
  void clear() { tensors_.clear(); }

  /// Of memory that nothing else refers to.
  int64_t bytes() const {
    std::map<const void*, int64_t> references;
    int64_t bytes = 0;
    for (const CountedTensor& tensor : tensors_) {
      if (++references[tensor.memory()] == tensor.num_references()) bytes += tensor.bytes();
    }
    return bytes;
  }

 private:
  std::vector<CountedTensor> tensors_;
};

}  // namespace weft
