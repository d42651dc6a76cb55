#include "weft/tensor/row_places.h"

#include <ATen/ops/tensor.h>

namespace weft {

RowPlaces::RowPlaces(std::span<const Range> places, at::Device device) {
  bool is_one_run = true;
  for (const Range& range : places) {
    is_one_run = is_one_run && (size_ == 0 || range.empty() || range.begin == begin_ + size_);
    if (size_ == 0) begin_ = range.begin;
    size_ += range.size();
  }
  if (is_one_run) return;
  std::vector<int64_t> index;
  index.reserve(static_cast<size_t>(size_));
  for (const Range& range : places) {
    for (int64_t place = range.begin; place < range.end; ++place) index.push_back(place);
  }
  index_ = at::tensor(index, at::kLong).to(device);
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
