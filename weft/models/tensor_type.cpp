#include "weft/models/tensor_type.h"

#include <array>

namespace weft {
namespace {

constexpr std::array<std::pair<WeightType, at::ScalarType>, 4> kTypes = {{{WeightType::kF64, at::kDouble},
                                                                          {WeightType::kF32, at::kFloat},
                                                                          {WeightType::kF16, at::kHalf},
                                                                          {WeightType::kBf16, at::kBFloat16}}};

}  // namespace

std::optional<at::ScalarType> tensor_type(WeightType type) {
  for (const auto& [stored, held] : kTypes)
    if (stored == type) return held;
  return std::nullopt;
}

std::optional<WeightType> weight_type(at::ScalarType type) {
  for (const auto& [stored, held] : kTypes)
    if (held == type) return stored;
  return std::nullopt;
}

}  // namespace weft
