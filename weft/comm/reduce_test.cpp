#include "weft/comm/reduce.h"

#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include <gtest/gtest.h>

#include "weft/base/check.h"
#include "weft/comm/half.h"

namespace weft {
namespace {

template <typename T>
std::vector<T> reduced(Reduction reduction, DataType type, const std::vector<std::vector<T>>& inputs) {
  std::vector<T> out(inputs[0].size());
  std::vector<const std::byte*> pointers;
  for (const auto& input : inputs) pointers.push_back(reinterpret_cast<const std::byte*>(input.data()));
  std::byte* const output = reinterpret_cast<std::byte*>(out.data());
  reduce(reduction, type, pointers, {&output, 1}, static_cast<int64_t>(out.size()));
  return out;
}

TEST(Half, EveryFp16NumberSurvivesTheWayToFloatAndBack) {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const auto half = static_cast<uint16_t>(bits);
    const float value = fp16_to_float(half);
    if (std::isnan(value)) {
      EXPECT_TRUE((bits & 0x7fff) > 0x7c00) << bits;
      EXPECT_TRUE(std::isnan(fp16_to_float(float_to_fp16(value))));
    } else {
      EXPECT_EQ(float_to_fp16(value), half);
    }
  }
  EXPECT_EQ(fp16_to_float(0x3c00), 1.0f);
  EXPECT_EQ(fp16_to_float(0x0001), std::ldexp(1.0f, -24));
  EXPECT_EQ(fp16_to_float(0xfbff), -65504.0f);
}

TEST(Half, RoundingIsToTheNearestAndToEvenOnTies) {
  // Between every two neighbours: the middle goes to the even one, what lies off the middle to the nearer one.
  for (uint32_t bits = 0; bits < 0x7bff; ++bits) {
    const double low = fp16_to_float(static_cast<uint16_t>(bits)),
                 high = fp16_to_float(static_cast<uint16_t>(bits + 1));
    const auto middle = static_cast<float>((low + high) / 2);
    EXPECT_EQ(float_to_fp16(middle), bits % 2 == 0 ? bits : bits + 1) << bits;
    EXPECT_EQ(float_to_fp16(std::nextafter(middle, 0.0f)), bits);
    EXPECT_EQ(float_to_fp16(std::nextafter(middle, 1e9f)), bits + 1);
  }
  EXPECT_EQ(float_to_fp16(65519.996f), 0x7bff);
  EXPECT_EQ(float_to_fp16(65520.0f), 0x7c00);
  for (uint32_t bits = 0; bits < 0x7f80; bits += 3) {
    const double low = bf16_to_float(static_cast<uint16_t>(bits)),
                 high = bf16_to_float(static_cast<uint16_t>(bits + 1));
    if (std::isinf(high)) continue;
    EXPECT_EQ(float_to_bf16(static_cast<float>((low + high) / 2)), bits % 2 == 0 ? bits : bits + 1) << bits;
  }
  EXPECT_EQ(float_to_bf16(std::numeric_limits<float>::max()), 0x7f80);
  EXPECT_TRUE(std::isnan(bf16_to_float(float_to_bf16(std::numeric_limits<float>::quiet_NaN()))));
}

TEST(Reduce, SixteenBitSumsAreRoundedOnce) {
  // 256 + 1 in bf16 is 256 again; summed in fp32, eight ones make 264.
  std::vector<std::vector<uint16_t>> inputs(9, {float_to_bf16(1)});
  inputs[0] = {float_to_bf16(256)};
  EXPECT_EQ(reduced(Reduction::kSum, DataType::kBf16, inputs)[0], float_to_bf16(264));
  std::vector<std::vector<uint16_t>> halves(9, {float_to_fp16(1)});
  halves[0] = {float_to_fp16(2048)};
  EXPECT_EQ(reduced(Reduction::kSum, DataType::kFp16, halves)[0], float_to_fp16(2056));
  // An average of what overflows fp16 in the sum.
  EXPECT_EQ(reduced(Reduction::kAvg, DataType::kFp16, std::vector(4, std::vector{float_to_fp16(60'000)}))[0],
            float_to_fp16(60'000));
}

TEST(Reduce, TheOrderIsThatOfTheInputs) {
  const std::vector<std::vector<float>> inputs = {{1e8f}, {-1e8f}, {1.0f}};
  EXPECT_EQ(reduced(Reduction::kSum, DataType::kFp32, inputs)[0], 1.0f);
  EXPECT_EQ(reduced<float>(Reduction::kSum, DataType::kFp32, {inputs[2], inputs[0], inputs[1]})[0], 0.0f);
}

/// Two outputs are written block by block, one straight from the inputs: both ways, and in place, give the same bits.
TEST(Reduce, TwoInputsGiveTheSameBitsWhereverTheResultGoes) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (const Reduction reduction : {Reduction::kSum, Reduction::kMax, Reduction::kAvg}) {
    for (const size_t count : {size_t{0}, size_t{1}, size_t{15}, size_t{16}, size_t{17}, size_t{1024}, size_t{2000}}) {
      std::vector<float> one(count), other(count), expected(count), again(count), apart(count);
      for (size_t i = 0; i < count; ++i) {
        one[i] = i % 7 == 3 ? nan : 1.0f / static_cast<float>(i + 1);
        other[i] = i % 7 == 5 ? -nan : -3e-8f * static_cast<float>(i * i % 101);
      }
      const auto bytes = [](std::vector<float>& values) { return reinterpret_cast<std::byte*>(values.data()); };
      const auto reduce_to = [&](const std::vector<std::byte*>& outputs) {
        const std::vector<const std::byte*> inputs = {bytes(one), bytes(other)};
        reduce(reduction, DataType::kFp32, inputs, outputs, static_cast<int64_t>(count));
      };
      const auto is_expected = [&](std::vector<float>& found) {
        return count == 0 || std::memcmp(found.data(), expected.data(), count * sizeof(float)) == 0;
      };
      reduce_to({bytes(expected), bytes(again)});
      reduce_to({bytes(apart)});
      EXPECT_TRUE(is_expected(apart)) << count;
      const std::vector<float> kept = one;
      reduce_to({bytes(one)});
      EXPECT_TRUE(is_expected(one)) << count;
      one = kept;
      reduce_to({bytes(other)});
      EXPECT_TRUE(is_expected(other)) << count;
    }
  }
}

TEST(Reduce, NotANumberIsKeptAndIntegersWrap) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  EXPECT_TRUE(std::isnan(reduced<float>(Reduction::kMax, DataType::kFp32, {{nan}, {1}})[0]));
  EXPECT_TRUE(std::isnan(reduced<float>(Reduction::kMax, DataType::kFp32, {{1}, {nan}, {2}})[0]));
  const int64_t most = std::numeric_limits<int64_t>::max();
  EXPECT_EQ(reduced<int64_t>(Reduction::kSum, DataType::kInt64, {{most}, {1}})[0], std::numeric_limits<int64_t>::min());
  EXPECT_EQ(reduced<int64_t>(Reduction::kMax, DataType::kInt64, {{-5}, {-3}})[0], -3);
  EXPECT_EQ(reduced<uint8_t>(Reduction::kSum, DataType::kBool, {{1, 0}, {1, 0}})[0], 1);
  EXPECT_THROW(reduced<int64_t>(Reduction::kAvg, DataType::kInt64, {{1}, {2}}), InternalError);
}

}  // namespace
}  // namespace weft
