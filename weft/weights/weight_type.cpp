#include "weft/weights/weight_type.h"

#include <algorithm>
#include <array>
#include <limits>
#include <vector>

#include "weft/base/check.h"
#include "weft/base/text.h"

namespace weft {
namespace {

struct TypeRow {
  WeightType type;
  std::string_view name;
  int64_t bits;
};

constexpr std::array<TypeRow, 22> kTypes = {{
    {WeightType::kBool, "BOOL", 8},
    {WeightType::kF4, "F4", 4},
    {WeightType::kF6E2M3, "F6_E2M3", 6},
    {WeightType::kF6E3M2, "F6_E3M2", 6},
    {WeightType::kU8, "U8", 8},
    {WeightType::kI8, "I8", 8},
    {WeightType::kF8E5M2, "F8_E5M2", 8},
    {WeightType::kF8E4M3, "F8_E4M3", 8},
    {WeightType::kF8E8M0, "F8_E8M0", 8},
    {WeightType::kF8E4M3Fnuz, "F8_E4M3FNUZ", 8},
    {WeightType::kF8E5M2Fnuz, "F8_E5M2FNUZ", 8},
    {WeightType::kI16, "I16", 16},
    {WeightType::kU16, "U16", 16},
    {WeightType::kF16, "F16", 16},
    {WeightType::kBf16, "BF16", 16},
    {WeightType::kI32, "I32", 32},
    {WeightType::kU32, "U32", 32},
    {WeightType::kF32, "F32", 32},
    {WeightType::kC64, "C64", 64},
    {WeightType::kF64, "F64", 64},
    {WeightType::kI64, "I64", 64},
    {WeightType::kU64, "U64", 64},
}};

constexpr bool rows_follow_the_enum() {
  for (size_t i = 0; i < kTypes.size(); ++i) {
    if (static_cast<size_t>(kTypes[i].type) != i) return false;
  }
  return true;
}
static_assert(rows_follow_the_enum());

const TypeRow& row_of(WeightType type) {
  return kTypes.at(static_cast<size_t>(type));
}

}  // namespace

std::string_view name_of(WeightType type) {
  return row_of(type).name;
}

std::optional<WeightType> weight_type_named(std::string_view name) {
  const auto row = std::find_if(kTypes.begin(), kTypes.end(), [&](const TypeRow& r) { return r.name == name; });
  return row == kTypes.end() ? std::nullopt : std::optional(row->type);
}

std::string all_weight_types() {
  std::vector<std::string> names;
  for (const TypeRow& row : kTypes) names.emplace_back(row.name);
  return joined_or(names);
}

int64_t bits_of(WeightType type) {
  return row_of(type).bits;
}

std::optional<int64_t> bytes_of(WeightType type, std::span<const int64_t> shape) {
  if (std::find(shape.begin(), shape.end(), 0) != shape.end()) return 0;
  const int64_t bits = bits_of(type);
  // Whole bytes are counted as such: a count of bits would lose three of the 63.
  const bool is_packed = bits % 8 != 0;
  int64_t size = is_packed ? bits : bits / 8;
  for (const int64_t dim : shape) {
    WEFT_CHECK(dim > 0, "a dim of {} elements", dim);
    if (size > std::numeric_limits<int64_t>::max() / dim) return std::nullopt;
    size *= dim;
  }
  if (!is_packed) return size;
  return size % 8 == 0 ? std::optional(size / 8) : std::nullopt;
}

}  // namespace weft
