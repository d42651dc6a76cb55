#include "weft/models/initialize.h"

#include <random>

#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>
#include <gtest/gtest.h>

namespace weft {
namespace {

constexpr uint64_t kFreshSeed = 12;

ParameterPtr fresh_parameter(ParameterSpec spec, at::ScalarType type) {
  WholeParameters maker(at::TensorOptions().dtype(type));
  const ParameterPtr parameter = maker.make(std::move(spec));
  initialize_weights({parameter}, kFreshSeed);
  return parameter;
}

at::Tensor fresh_whole(const std::string& name, const std::vector<int64_t>& shape, const Initialization& init) {
  return fresh_parameter({.pieces = {whole_weight(name, shape)}, .shape = shape, .init = init}, at::kFloat)
      ->value.detach();
}

TEST(InitializeWeights, APieceIsThePartOfTheWholeWeight) {
  std::mt19937_64 random(3);
  const auto below = [&](int64_t n) { return static_cast<int64_t>(random() % static_cast<uint64_t>(n)); };
  for (int example = 0; example < 60; ++example) {
    std::vector<int64_t> shape = {1 + below(40), 1 + below(300)};
    if (below(3) == 0) shape.push_back(1 + below(4));
    Initialization init = Initialization::normal(0.02);
    if (below(2) == 0) init.zero_row = below(shape[0]);
    const at::Tensor whole = fresh_whole("some.weight", shape, init);

    WeightPiece piece = whole_weight("some.weight", shape);
    piece.first_row = below(shape[0]);
    piece.num_rows = 1 + below(shape[0] - piece.first_row);
    if (below(2) == 0) {
      piece.first_column = below(shape[1]);
      piece.num_columns = 1 + below(shape[1] - piece.first_column);
    }
    const at::Tensor expected = held_part(piece, whole).reshape({-1});
    ASSERT_EQ(expected.numel(), piece.num_elements());
    for (const at::ScalarType type : {at::kFloat, at::kDouble, at::kBFloat16}) {
      const int64_t first = below(piece.num_elements());
      const int64_t count = 1 + below(piece.num_elements() - first);
      const at::Tensor found = at::empty({count}, type);
      initialize_elements(piece, init, kFreshSeed, first, found);
      EXPECT_TRUE(found.equal(expected.narrow(0, first, count).to(type)))
          << "elements " << first << " to " << first + count << " of a piece of [" << shape[0] << ", " << shape[1]
          << "] from row " << piece.first_row << ", column " << piece.first_column;
    }
  }
}

TEST(InitializeWeights, AreTheSameOnAnyNumberOfThreads) {
  const std::vector<int64_t> shape = {311, 1033};  // several times what a thread draws at a time
  const int before = at::get_num_threads();
  at::set_num_threads(1);
  const at::Tensor one = fresh_whole("some.weight", shape, Initialization::normal(1));
  at::set_num_threads(3);
  const at::Tensor three = fresh_whole("some.weight", shape, Initialization::normal(1));
  at::set_num_threads(before);
  EXPECT_TRUE(one.equal(three));
  EXPECT_NEAR(one.std().item<double>(), 1, 0.01);
  EXPECT_NEAR(one.mean().item<double>(), 0, 0.01);
}

TEST(InitializeWeights, FollowTheFamilysPrescription) {
  EXPECT_TRUE(fresh_whole("ones", {7}, Initialization::ones()).eq(1).all().item<bool>());
  EXPECT_TRUE(fresh_whole("zeros", {7}, Initialization::zeros()).eq(0).all().item<bool>());
  Initialization padded = Initialization::normal(0.02);
  padded.zero_row = 2;
  const at::Tensor table = fresh_whole("table", {5, 100}, padded);
  EXPECT_EQ(table.select(0, 2).count_nonzero().item<int64_t>(), 0);
  EXPECT_EQ(table.count_nonzero().item<int64_t>(), 400);
  // Of three rows, one weight has the first and the last; those between have no name and are zero.
  const ParameterPtr parts = fresh_parameter(
      {.pieces = {whole_weight("q", {1, 9}), {.shape = {1, 9}, .num_rows = 1}, whole_weight("v", {1, 9})},
       .shape = {3, 9},
       .init = Initialization::normal(1)},
      at::kDouble);
  EXPECT_TRUE(parts->value.detach()[0].equal(fresh_whole("q", {1, 9}, Initialization::normal(1))[0].to(at::kDouble)));
  EXPECT_EQ(parts->value.detach()[1].count_nonzero().item<int64_t>(), 0);
  EXPECT_FALSE(parts->value.detach()[0].equal(parts->value.detach()[2]));
}

}  // namespace
}  // namespace weft
