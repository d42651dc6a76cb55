#pragma once

#include <string>

#include <ATen/core/Tensor.h>

#include "weft/base/result.h"
#include "weft/spec/model.h"

namespace weft {

/// "fp32", "fp64" or "bf16"; an empty name means the type in which the model's configuration says it was saved, where
/// this is one of them, and fp32 otherwise.
Result<at::ScalarType> compute_type(const std::string& name, const Model& model);
std::string name_of_type(at::ScalarType type);

/// "cpu" or "cuda", ready for use.
Result<at::Device> open_device(const std::string& name);

}  // namespace weft
