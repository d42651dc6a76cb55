#pragma once

#include <filesystem>
#include <map>
#include <string>

#include <ATen/core/Tensor.h>

#include "weft/base/result.h"

namespace weft {

/// The tensors of a safetensors file by name. They share the file's memory where it is aligned: not to be written to.
Result<std::map<std::string, at::Tensor>> read_tensors(const std::filesystem::path& path);

}  // namespace weft
