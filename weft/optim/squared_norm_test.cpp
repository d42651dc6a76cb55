#include "weft/optim/squared_norm.h"

#include <cmath>
#include <limits>

#include <ATen/TensorOperators.h>
#include <ATen/ops/full.h>
#include <ATen/ops/randn.h>
#include <gtest/gtest.h>

namespace weft {
namespace {

double exact(const at::Tensor& flat) {
  return flat.to(at::kDouble).square().sum().item<double>();
}

TEST(SquaredNorm, IsThatOfDoublePrecisionForEveryLength) {
  for (const int64_t size : {0, 1, 7, 1023, 1024, 1025, 5000, 65'535, 65'536, 66'000, 3'000'000}) {
    const at::Tensor flat = at::randn({size}) * 1e-3;
    const at::Tensor found = squared_norm(flat);
    EXPECT_EQ(found.scalar_type(), at::kDouble);
    EXPECT_EQ(found.dim(), 0);
    EXPECT_NEAR(found.item<double>(), exact(flat), 2e-7 * exact(flat)) << size;
  }
}

TEST(SquaredNorm, OfPartsIsTheSumWithTheirFactors) {
  const at::Tensor a = at::randn({100'000}), b = at::randn({3}, at::kDouble), none = at::randn({0});
  const at::Tensor found = weighted_squares({{a, 0.5}, {none, 7}, {b, 3}}, at::kCPU);
  const double expected = 0.5 * exact(a) + 3 * exact(b);
  EXPECT_NEAR(found.item<double>(), expected, 2e-7 * expected);
  EXPECT_EQ(weighted_squares({}, at::kCPU).item<double>(), 0);
}

TEST(SquaredNorm, KeepsDigitsThatOneLongSumInSinglePrecisionLoses) {
  const at::Tensor flat = at::full({30'000'000}, 0.1, at::kFloat);
  EXPECT_NEAR(squared_norm(flat).item<double>() / exact(flat), 1, 1e-6);
}

TEST(SquaredNorm, TakesDoubleAndShortTypes) {
  for (const int64_t size : {2500, 200'000}) {
    const at::Tensor exact_values = at::randn({size}, at::kDouble);
    EXPECT_NEAR(squared_norm(exact_values).item<double>(), exact(exact_values), 1e-12 * exact(exact_values));
    const at::Tensor short_values = exact_values.to(at::kBFloat16);
    EXPECT_NEAR(squared_norm(short_values).item<double>(), exact(short_values), 2e-7 * exact(short_values));
  }
}

TEST(SquaredNorm, ShowsWhatIsNotFinite) {
  for (const int64_t size : {5000, 200'000}) {
    at::Tensor flat = at::randn({size});
    flat[4321] = std::nanf("");
    EXPECT_TRUE(std::isnan(squared_norm(flat).item<double>()));
    flat[4321] = std::numeric_limits<float>::infinity();
    EXPECT_TRUE(std::isinf(squared_norm(flat).item<double>()));
  }
}

TEST(SquaredNorm, SquaresBeyondSinglePrecisionAreFiniteInDouble) {
  const at::Tensor flat = at::full({200'000}, 1e30, at::kFloat);
  EXPECT_FALSE(std::isfinite(squared_norm(flat).item<double>()));
  EXPECT_NEAR(squared_norm_in_double(flat).item<double>() / exact(flat), 1, 1e-9);
}

}  // namespace
}  // namespace weft
