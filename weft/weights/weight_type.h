#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace weft {

/// What the numbers of a stored weight are. The order is that of the format's own library, whose files hold the last of
/// these first; it puts wide types before narrow ones.
enum class WeightType {
  kBool,
  kF4,
  kF6E2M3,
  kF6E3M2,
  kU8,
  kI8,
  kF8E5M2,
  kF8E4M3,
  kF8E8M0,
  kF8E4M3Fnuz,
  kF8E5M2Fnuz,
  kI16,
  kU16,
  kF16,
  kBf16,
  kI32,
  kU32,
  kF32,
  kC64,
  kF64,
  kI64,
  kU64,
};

/// As files spell it: "BF16".
std::string_view name_of(WeightType type);
std::optional<WeightType> weight_type_named(std::string_view name);
/// "BOOL, F4, ... or U64".
std::string all_weight_types();

/// The bits of one element; fewer than 8 where elements are packed.
int64_t bits_of(WeightType type);

/// The bytes of a tensor. Nothing where 63 bits cannot hold them, or where packed elements do not fill whole bytes.
std::optional<int64_t> bytes_of(WeightType type, std::span<const int64_t> shape);

}  // namespace weft
