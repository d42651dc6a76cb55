#include "weft/layers/parameter.h"

#include "tests/support/layers/compare_gradients.h"
#include "tests/support/layers/live_bytes.h"

namespace weft {
namespace {

TEST(Parameters, GradientsAddUp) {
  const ParameterPtr weight = random_parameter({3, 4}, 1);
  const at::Tensor a = random_tensor({3, 4}, 2), b = random_tensor({3, 4}, 3);
  weight->add_gradient(a.clone());
  weight->add_gradient(b);
  EXPECT_LE(relative_difference(weight->gradient, a + b), 1e-15);
}

TEST(Parameters, ProductsAddUpToGradientsOfEitherKind) {
  const ParameterPtr weight = random_parameter({3, 4}, 1);
  const at::Tensor left = random_tensor({3, 6}, 2), right = random_tensor({6, 4}, 3), other = random_tensor({3, 4}, 4);
  weight->add_product(left, right);
  EXPECT_LE(relative_difference(weight->gradient, at::mm(left, right)), 1e-14);
  weight->add_product(left, right);
  EXPECT_LE(relative_difference(weight->gradient, 2 * at::mm(left, right)), 1e-14);
  weight->add_gradient(other);
  EXPECT_LE(relative_difference(weight->gradient, 2 * at::mm(left, right) + other), 1e-14);
}

TEST(Parameters, RowsWithoutANameStayZero) {
  auto bias = random_parameter({7}, 1);
  bias->spec.pieces = {whole_weight("q", {3}), zero_rows(2), whole_weight("v", {2})};
  for (int round = 1; round <= 2; ++round) {
    bias->add_gradient(at::ones({7}, at::kDouble));
    EXPECT_TRUE(bias->gradient.equal(at::tensor({1.0, 1.0, 1.0, 0.0, 0.0, 1.0, 1.0}, at::kDouble) * round));
  }
  auto matrix = random_parameter({5, 2}, 1);
  matrix->spec.pieces = {whole_weight("a", {2, 2}), zero_rows(1), whole_weight("b", {2, 2})};
  for (int round = 1; round <= 2; ++round) {
    matrix->add_product(at::ones({5, 1}, at::kDouble), at::ones({1, 2}, at::kDouble));
    EXPECT_EQ(matrix->gradient.select(0, 2).abs().sum().item<double>(), 0) << "round " << round;
    EXPECT_EQ(matrix->gradient.sum().item<double>(), 8 * round);
  }
}

TEST(Parameters, FloatGradientsOfBfloat16ValuesKeepWhatBfloat16WouldLose) {
  const ParameterPtr weight = parameter_of(at::ones({1, 1}, at::kBFloat16));
  weight->gradient_type = at::kFloat;
  const at::Tensor one = at::ones({1, 1}, at::kBFloat16);
  weight->add_gradient(one * 256);
  for (int i = 0; i < 5; ++i) weight->add_gradient(one);
  for (int i = 0; i < 5; ++i) weight->add_product(one, one);
  EXPECT_EQ(weight->gradient.scalar_type(), at::kFloat);
  EXPECT_EQ(weight->gradient.item<float>(), 266);  // in bfloat16, 256 + 1 is 256
}

TEST(Parameters, AGradientThatWasFlatTakesTheShape) {
  const ParameterPtr weight = random_parameter({3, 2, 2}, 1);
  weight->add_product(random_tensor({3, 6}, 2), random_tensor({6, 4}, 3));
  EXPECT_EQ(weight->gradient.sizes(), weight->value.sizes());
  const at::Tensor once = weight->gradient.clone();
  weight->add_product(random_tensor({3, 6}, 2), random_tensor({6, 4}, 3));
  EXPECT_LE(relative_difference(weight->gradient, 2 * once), 1e-14);
}

TEST(Parameters, NamesAreThoseOfThePieces) {
  auto bias = random_parameter({7}, 1);
  bias->spec.pieces = {whole_weight("q", {3}), zero_rows(2), whole_weight("v", {2})};
  EXPECT_EQ(bias->name(), "q + v");
}

TEST(Parameters, AMakerRemembersWhatItMade) {
  WholeParameters maker(at::TensorOptions().dtype(at::kBFloat16));
  const ParameterPtr first =
      maker.make({.pieces = {whole_weight("a", {2, 3}), whole_weight("b", {1, 3})}, .shape = {3, 3}});
  const ParameterPtr second = maker.make({.pieces = {whole_weight("c", {4})}, .shape = {2, 2}});
  EXPECT_EQ(maker.all(), (std::vector<ParameterPtr>{first, second}));
  EXPECT_TRUE(first->is_trainable());
  EXPECT_EQ(first->gradient_type, at::kBFloat16);
  EXPECT_EQ(second->value.sizes(), (std::vector<int64_t>{2, 2}));
  EXPECT_ANY_THROW(maker.make({.pieces = {whole_weight("d", {4})}, .shape = {5}}));
}

TEST(Parameters, AreMadeAsShapesWhereMemoryComesLater) {
  const LiveBytes live;
  WholeParameters maker(at::TensorOptions().dtype(at::kFloat), ValueMemory::kLater);
  const ParameterPtr parameter = maker.make({.pieces = {whole_weight("a", {200, 30})}, .shape = {200, 30}});
  EXPECT_EQ(live.now(), 0);
  EXPECT_EQ(parameter->value.sizes(), (std::vector<int64_t>{200, 30}));
  EXPECT_EQ(parameter->value.scalar_type(), at::kFloat);
  EXPECT_TRUE(parameter->value.device().is_cpu() && parameter->is_trainable());
}

}  // namespace
}  // namespace weft
