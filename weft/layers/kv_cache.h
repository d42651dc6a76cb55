#pragma once

#include <cstdint>
#include <vector>

#include <ATen/core/Tensor.h>

namespace weft {

/// Turned keys and values of one sequence so far, for every layer: [rows, kv_heads, head_dim] each.
class KvCache {
 public:
  KvCache(int64_t num_layers, int64_t capacity) : layers_(static_cast<size_t>(num_layers)), capacity_(capacity) {}

  struct Rows {
    at::Tensor keys;
    at::Tensor values;
  };
  /// Adds rows to a layer's; all rows so far, the new ones last.
  Rows append(int64_t layer, const at::Tensor& keys, const at::Tensor& values);

 private:
  struct Layer {
    at::Tensor keys;  ///< of the whole capacity
    at::Tensor values;
    int64_t num_rows = 0;
  };
  std::vector<Layer> layers_;
  int64_t capacity_;
};

}  // namespace weft
