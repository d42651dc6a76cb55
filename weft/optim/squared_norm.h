#pragma once

#include <ATen/core/Tensor.h>

namespace weft {

/// The sum of squares of a flat tensor's elements, as one double on its device. Single precision is summed up in short
/// rows and these in double precision: as quick as reading the memory, where LibTorch converts element by element to
/// sum in double precision, and precise, where its sum in single precision loses digits in long tensors. Short tensors
/// are summed in double precision throughout.
at::Tensor squared_norm(const at::Tensor& flat);

/// The same in double precision throughout: finite where a square would not be in single precision.
at::Tensor squared_norm_in_double(const at::Tensor& flat);

}  // namespace weft
