#pragma once

#include "weft/base/result.h"

namespace weft {

/// Loads the half of LibTorch that works on GPUs, if this machine has one: true, and tensors can be on it. False where
/// there is no GPU, or LibTorch has no such half. An Error where it is there and cannot be used, with what is missing.
/// Must be called before anything asks LibTorch about CUDA, since the answer is remembered; calling it again gives the
/// first answer.
Result<bool> load_cuda_library();

}  // namespace weft
