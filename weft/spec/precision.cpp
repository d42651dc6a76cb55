#include "weft/spec/precision.h"

#include <array>

namespace weft {

double num_bytes(Precision precision) {
  switch (precision) {
    case Precision::kFp64:
      return 8;
    case Precision::kFp32:
      return 4;
    case Precision::kBf16:
    case Precision::kFp16:
      return 2;
  }
  return 0;
}

std::span<const std::string> precision_names() {
  static const std::array<std::string, 4> names = {"fp64", "fp32", "bf16", "fp16"};
  return names;
}

const std::string& name_of(Precision precision) {
  return precision_names()[static_cast<size_t>(precision)];
}

}  // namespace weft
