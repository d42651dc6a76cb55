#include "weft/optim/squared_norm.h"

#include <cmath>
#include <limits>

#include <ATen/TensorOperators.h>
#include <ATen/ops/full.h>
#include <ATen/ops/randn.h>
#include <gtest/gtest.h>

namespace weft {
namespace {

/// What rounding may do to the sum of a thousand squares in single precision.
constexpr double kOneRow = 1e-6;

double exact(const at::Tensor& flat) {
  return flat.to(at::kDouble).square().sum().item<double>();
}

TEST(SquaredNorm, IsThatOfDoublePrecisionForEveryLength) {
  for (const int64_t size : {0, 1, 7, 1023, 1024, 1025, 5000, 3'000'000}) {
    const at::Tensor flat = at::randn({size}) * 1e-3;
    const at::Tensor found = squared_norm(flat);
    EXPECT_EQ(found.scalar_type(), at::kDouble);
    EXPECT_EQ(found.dim(), 0);
    // A row is summed in single precision; over thousands of rows its errors cancel.
    EXPECT_NEAR(found.item<double>(), exact(flat), (size > 1'000'000 ? 1e-8 : kOneRow) * exact(flat)) << size;
  }
}

TEST(SquaredNorm, KeepsDigitsThatOneLongSumInSinglePrecisionLoses) {
  const at::Tensor flat = at::full({30'000'000}, 0.1, at::kFloat);
  EXPECT_NEAR(squared_norm(flat).item<double>() / exact(flat), 1, 1e-6);
}

TEST(SquaredNorm, TakesDoubleAndShortTypes) {
  const at::Tensor exact_values = at::randn({2500}, at::kDouble);
  EXPECT_NEAR(squared_norm(exact_values).item<double>(), exact(exact_values), 1e-12 * exact(exact_values));
  const at::Tensor short_values = exact_values.to(at::kBFloat16);
  EXPECT_NEAR(squared_norm(short_values).item<double>(), exact(short_values), kOneRow * exact(short_values));
}

TEST(SquaredNorm, ShowsWhatIsNotFinite) {
  at::Tensor flat = at::randn({5000});
  flat[4321] = std::nanf("");
  EXPECT_TRUE(std::isnan(squared_norm(flat).item<double>()));
  flat[4321] = std::numeric_limits<float>::infinity();
  EXPECT_TRUE(std::isinf(squared_norm(flat).item<double>()));
}

TEST(SquaredNorm, SquaresBeyondSinglePrecisionAreFiniteInDouble) {
  const at::Tensor flat = at::full({2000}, 1e30, at::kFloat);
  EXPECT_FALSE(std::isfinite(squared_norm(flat).item<double>()));
  EXPECT_NEAR(squared_norm_in_double(flat).item<double>() / exact(flat), 1, 1e-9);
}

}  // namespace
}  // namespace weft
