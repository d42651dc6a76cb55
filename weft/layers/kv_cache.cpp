#include "weft/layers/kv_cache.h"

#include <ATen/ops/empty.h>

#include "weft/base/check.h"

namespace weft {

KvCache::Rows KvCache::append(int64_t layer_index, const at::Tensor& keys, const at::Tensor& values) {
  Layer& layer = layers_[static_cast<size_t>(layer_index)];
  const int64_t added = keys.size(0);
  WEFT_CHECK(layer.num_rows + added <= capacity_, "a cache for {} rows got {}", capacity_, layer.num_rows + added);
  if (!layer.keys.defined()) {
    const std::vector<int64_t> shape = {capacity_, keys.size(1), keys.size(2)};
    layer.keys = at::empty(shape, keys.options());
    layer.values = at::empty(shape, values.options());
  }
  layer.keys.narrow(0, layer.num_rows, added).copy_(keys);
  layer.values.narrow(0, layer.num_rows, added).copy_(values);
  layer.num_rows += added;
  return {layer.keys.narrow(0, 0, layer.num_rows), layer.values.narrow(0, 0, layer.num_rows)};
}

}  // namespace weft
