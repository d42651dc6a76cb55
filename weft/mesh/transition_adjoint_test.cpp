#include <gtest/gtest.h>

#include "tests/support/draws.h"
#include "tests/support/mesh/all_layouts.h"
#include "tests/support/mesh/simulated_tensor.h"
#include "weft/mesh/transition.h"

namespace weft {
namespace {

/// Small whole numbers, so that sums in any order are exact and equality is the test.
struct Draw {
  std::mt19937_64 random{5};

  double operator()() { return static_cast<double>(random() % 17) - 8; }
};

/// Whether the forward transition keeps the value, the adjoint keeps the gradient, and <T x, y> = <x, T* y>.
void expect_adjoint(const Layout& from, const Layout& to, Draw& draw) {
  const Transition transition = plan_transition(from, to);
  const SimulatedTensor x = fill(from, std::ref(draw));
  const SimulatedTensor y = fill(to.gradient(), std::ref(draw));
  const SimulatedTensor moved = execute(transition.forward, x);
  const SimulatedTensor returned = execute(transition.adjoint, y);
  const bool keeps_value = logical_value(moved) == logical_value(x);
  const bool keeps_gradient = logical_value(returned) == logical_value(y);
  const bool is_adjoint = pairing(moved, y) == pairing(x, returned);
  EXPECT_TRUE(moved.layout == to && returned.layout == from.gradient() && keeps_value && keeps_gradient && is_adjoint)
      << from.text() << "\n  to " << to.text() << "\n  by " << text(transition.forward) << "\n  and "
      << text(transition.adjoint);
}

void expect_adjoint_for_all_pairs(const std::vector<int64_t>& mesh, const std::vector<int64_t>& shape,
                                  size_t every = 1) {
  Draw draw;
  const std::vector<Layout> layouts = all_layouts(grid_of(mesh), shape);
  for (size_t pair = 0; pair < layouts.size() * layouts.size(); pair += every)
    expect_adjoint(layouts[pair / layouts.size()], layouts[pair % layouts.size()], draw);
}

TEST(Transition, IsAdjointForAllPairsOfLayoutsOnOneAxis) {
  for (const int64_t size : {1, 2, 3, 8}) {
    for (const std::vector<int64_t>& shape :
         {std::vector<int64_t>{}, {8}, {5}, {2}, {0}, {4, 6}, {5, 3}, {1, 9}, {0, 4}, {3, 2, 4}})
      expect_adjoint_for_all_pairs({size}, shape);
  }
}

TEST(Transition, IsAdjointForAllPairsOfLayoutsOnTwoAxes) {
  for (const std::vector<int64_t>& mesh : {std::vector<int64_t>{2, 2}, {3, 2}, {2, 4}, {1, 3}}) {
    for (const std::vector<int64_t>& shape : {std::vector<int64_t>{4, 8}, {5, 3}, {1, 2}, {0, 3}, {7}})
      expect_adjoint_for_all_pairs(mesh, shape);
  }
}

TEST(Transition, IsAdjointForAllPairsOfLayoutsOnThreeAxes) {
  expect_adjoint_for_all_pairs({2, 2, 2}, {5, 3}, kIsSanitized ? 11 : 1);
}

TEST(Transition, IsAdjointForRandomPairsOfRaggedLayouts) {
  Draw draw;
  for (int round = 0; round < draws(3000); ++round) {
    std::vector<int64_t> mesh;
    for (int64_t room = 8; room > 1 && mesh.size() < 3;) {
      mesh.push_back(1 + static_cast<int64_t>(draw.random() % static_cast<uint64_t>(room)));
      room /= mesh.back();
    }
    std::vector<int64_t> shape(draw.random() % 3 + 1);
    for (int64_t& size : shape) size = static_cast<int64_t>(draw.random() % 7);
    const AxisGrid grid = grid_of(mesh);
    const Layout from = random_layout(grid, shape, draw.random);
    expect_adjoint(from, random_layout(grid, shape, draw.random), draw);
  }
}

}  // namespace
}  // namespace weft
