#pragma once

#include <span>
#include <string>

namespace weft {

/// A number format that compute can run in.
enum class Precision { kFp64, kFp32, kBf16, kFp16 };

double num_bytes(Precision precision);

/// "fp64", "fp32", "bf16", "fp16", in the order of the enum.
std::span<const std::string> precision_names();

const std::string& name_of(Precision precision);

}  // namespace weft
