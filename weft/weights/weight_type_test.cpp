#include "weft/weights/weight_type.h"

#include <limits>

#include <gtest/gtest.h>

namespace weft {
namespace {

std::optional<int64_t> bytes(WeightType type, std::vector<int64_t> shape) {
  return bytes_of(type, shape);
}

TEST(WeightType, EveryTypeHasItsOwnNameAndIsFoundByIt) {
  for (int i = 0; i <= static_cast<int>(WeightType::kU64); ++i) {
    const auto type = static_cast<WeightType>(i);
    EXPECT_EQ(weight_type_named(name_of(type)), type) << i;
  }
  EXPECT_EQ(name_of(WeightType::kBf16), "BF16");
  EXPECT_EQ(name_of(WeightType::kF8E4M3), "F8_E4M3");
  EXPECT_FALSE(weight_type_named("bf16").has_value());
  EXPECT_FALSE(weight_type_named("").has_value());
}

TEST(WeightType, BytesAreElementsTimesWidth) {
  EXPECT_EQ(bytes(WeightType::kBf16, {3, 5}), 30);
  EXPECT_EQ(bytes(WeightType::kF64, {}), 8);
  EXPECT_EQ(bytes(WeightType::kBool, {7}), 7);
  EXPECT_EQ(bytes(WeightType::kC64, {2}), 16);
  EXPECT_EQ(bytes(WeightType::kF32, {4, 0, 9}), 0);
}

TEST(WeightType, PackedElementsFillWholeBytesOrHaveNoSize) {
  EXPECT_EQ(bytes(WeightType::kF4, {6}), 3);
  EXPECT_EQ(bytes(WeightType::kF6E2M3, {4}), 3);
  EXPECT_FALSE(bytes(WeightType::kF4, {3}).has_value());
  EXPECT_FALSE(bytes(WeightType::kF6E3M2, {2}).has_value());
}

TEST(WeightType, SizesBeyond63BitsAreNoSizes) {
  const int64_t most = std::numeric_limits<int64_t>::max();
  EXPECT_EQ(bytes(WeightType::kU8, {most}), most);
  EXPECT_FALSE(bytes(WeightType::kI16, {most}).has_value());
  EXPECT_FALSE(bytes(WeightType::kU8, {int64_t{1} << 32, int64_t{1} << 32}).has_value());
  EXPECT_EQ(bytes(WeightType::kF64, {most, 0, most}), 0);
}

}  // namespace
}  // namespace weft
