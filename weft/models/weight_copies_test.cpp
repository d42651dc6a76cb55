#include "weft/models/weight_copies.h"

#include <cmath>
#include <cstring>
#include <limits>
#include <tuple>

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

namespace weft {
namespace {

const std::vector<at::ScalarType> kTypes = {at::kDouble, at::kFloat, at::kHalf, at::kBFloat16};

at::Tensor drawn(int64_t count, at::ScalarType type) {
  return at::empty({count}, at::kDouble).normal_(0, 1, at::detail::createCPUGenerator(5)).to(type);
}

/// A copy of all of a flat tensor.
WeightCopy whole(const at::Tensor& from, const at::Tensor& to) {
  return {.to = to,
          .from = static_cast<const std::byte*>(from.data_ptr()),
          .type = from.scalar_type(),
          .row_elements = from.numel(),
          .row_stride = from.numel()};
}

TEST(WeightCopies, EveryTypeBecomesEveryOther) {
  for (const int threads : {1, 3}) {
    at::set_num_threads(threads);
    for (const at::ScalarType type : kTypes) {
      const at::Tensor small = drawn(7, type);
      const at::Tensor large = drawn((int64_t{2} << 20) + 5, type);
      for (const at::ScalarType wanted : kTypes) {
        const at::Tensor a = at::zeros({7}, wanted);
        const at::Tensor b = at::zeros({large.numel()}, wanted);
        EXPECT_FALSE(copy_weights({whole(small, a), whole(large, b)}));
        EXPECT_TRUE(a.equal(small.to(wanted)));
        EXPECT_TRUE(b.equal(large.to(wanted)));
      }
    }
  }
  at::set_num_threads(1);
}

TEST(WeightCopies, ColumnsOfRowsAreTakenAlone) {
  for (const auto& [rows, width, first, count] :
       {std::tuple{3, 10, 2, 5}, std::tuple{900, 3000, 1000, 1700}, std::tuple{2, 100000, 5, 90000}}) {
    for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
      const at::Tensor all = drawn(int64_t{rows} * width, type);
      const at::Tensor to = at::zeros({int64_t{rows} * count}, at::kFloat);
      const auto skipped = static_cast<size_t>(first) * c10::elementSize(type);
      EXPECT_FALSE(copy_weights({{.to = to,
                                  .from = static_cast<const std::byte*>(all.data_ptr()) + skipped,
                                  .type = type,
                                  .row_elements = count,
                                  .row_stride = width}}));
      EXPECT_TRUE(to.view({rows, count}).equal(all.view({rows, width}).narrow(1, first, count).to(at::kFloat)));
    }
  }
}

TEST(WeightCopies, ElementsNeedNoAlignment) {
  const at::Tensor from = drawn(1000, at::kFloat);
  std::vector<std::byte> bytes(4001);
  std::memcpy(bytes.data() + 1, from.data_ptr(), 4000);
  for (const at::ScalarType wanted : {at::kFloat, at::kDouble}) {
    const at::Tensor to = at::zeros({1000}, wanted);
    WeightCopy copy = whole(from, to);
    copy.from = bytes.data() + 1;
    EXPECT_FALSE(copy_weights({copy}));
    EXPECT_TRUE(to.equal(from.to(wanted)));
  }
}

TEST(WeightCopies, TheFirstThatIsNotFiniteIsNamed) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  for (const at::ScalarType type : kTypes) {
    for (const double bad : {kInfinity, -kInfinity, std::nan("")}) {
      for (const int64_t place : {int64_t{0}, int64_t{33333}, (int64_t{1} << 20) + 2}) {
        const at::Tensor good = drawn(10, type);
        const at::Tensor from = drawn((int64_t{1} << 20) + 3, type);
        from[place] = bad;
        for (const at::ScalarType wanted : {type, at::kDouble}) {
          const at::Tensor to = at::zeros({from.numel()}, wanted);
          const at::Tensor other = at::zeros({10}, wanted);
          const auto found = copy_weights({whole(good, other), whole(from, to), whole(from, to)});
          ASSERT_TRUE(found.has_value());
          EXPECT_EQ(*found, 1u);
        }
      }
    }
  }
}

TEST(WeightCopies, TheLargestAndSmallestFiniteNumbersPass) {
  for (const at::ScalarType type : kTypes) {
    const double largest = type == at::kDouble  ? std::numeric_limits<double>::max()
                           : type == at::kFloat ? std::numeric_limits<float>::max()
                           : type == at::kHalf  ? 65504
                                                : 3.3895313892515355e38;
    const at::Tensor from = at::zeros({4}, type);
    from[0] = largest;
    from[1] = -largest;
    from[2] = -0.0;
    from[3] = 1e-7;
    const at::Tensor to = at::zeros({4}, type);
    EXPECT_FALSE(copy_weights({whole(from, to)}));
    EXPECT_TRUE(to.equal(from));
  }
}

TEST(WeightCopies, NothingToCopyIsFine) {
  EXPECT_FALSE(copy_weights({}));
  EXPECT_FALSE(copy_weights({whole(drawn(1, at::kFloat).narrow(0, 0, 0), at::zeros({0}, at::kFloat))}));
}

}  // namespace
}  // namespace weft
