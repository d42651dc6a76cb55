#include "weft/tensor/row_places.h"

#include <ATen/ops/tensor.h>

namespace weft {

RowPlaces::RowPlaces(const std::vector<int64_t>& places, at::Device device) : size_(std::ssize(places)) {
  if (places.empty()) return;
  begin_ = places.front();
  for (int64_t i = 1; i < size_; ++i) {
    if (places[static_cast<size_t>(i)] == begin_ + i) continue;
    index_ = at::tensor(places, at::kLong).to(device);
    return;
  }
}

at::Tensor RowPlaces::take(const at::Tensor& rows) const {
  if (!is_run()) return rows.index_select(0, index_);
  return are_all_of(rows.size(0)) ? rows : rows.narrow(0, begin_, size_);
}

void RowPlaces::put(const at::Tensor& rows, at::Tensor into) const {
  if (is_run()) {
    into.narrow(0, begin_, size_).copy_(rows);
  } else {
    into.index_copy_(0, index_, rows);
  }
}

}  // namespace weft
