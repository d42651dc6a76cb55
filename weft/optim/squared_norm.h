#pragma once

#include <vector>

#include <ATen/core/Tensor.h>

namespace weft {

/// The sum of squares of a flat tensor's elements, as one double on its device. Single precision is summed up in short
/// rows and these in double precision: as quick as reading the memory, where LibTorch converts element by element to
/// sum in double precision, and precise, where its sum in single precision loses digits in long tensors. Short tensors
/// are summed in double precision throughout.
at::Tensor squared_norm(const at::Tensor& flat);

/// A flat tensor whose squares count with a factor.
struct WeightedElements {
  at::Tensor flat;
  double factor = 1;
};

/// The sum of all parts' squares, each times its factor. On a GPU with own kernels one kernel reads many parts: as much
/// memory as a bucket has is read in the time that four kernels take to begin.
at::Tensor weighted_squares(const std::vector<WeightedElements>& parts, at::Device device);

/// The same as squared_norm in double precision throughout: finite where a square would not be in single precision.
at::Tensor squared_norm_in_double(const at::Tensor& flat);

}  // namespace weft
