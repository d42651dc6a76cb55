#pragma once

#include <cstdint>
#include <vector>

#include <ATen/core/Tensor.h>

namespace weft {

/// The whole numbers of a tensor, wherever it lies; none where there is no tensor.
inline std::vector<int64_t> listed_numbers(const at::Tensor& numbers) {
  if (!numbers.defined()) return {};
  const at::Tensor here = numbers.cpu().contiguous();
  const auto* begin = here.data_ptr<int64_t>();
  return {begin, begin + here.numel()};
}

}  // namespace weft
