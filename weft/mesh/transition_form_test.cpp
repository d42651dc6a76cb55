#include "weft/mesh/transition_form.h"

#include <random>

#include <gtest/gtest.h>

#include "tests/support/draws.h"
#include "tests/support/mesh/all_layouts.h"
#include "tests/support/mesh/simulated_tensor.h"

namespace weft::transition_form_test {
namespace {

/// Dims of these lengths, cut between units.
Layout cut(const AxisGrid& grid, const std::vector<int64_t>& units, const std::vector<int64_t>& unit,
           const std::vector<AxisState>& states) {
  std::vector<int64_t> shape;
  std::vector<PartSizes> sizes;
  for (size_t dim = 0; dim < units.size(); ++dim) {
    shape.push_back(units[dim] * unit[dim]);
    std::vector<int64_t> counts;
    for (size_t axis = grid.num_axes(); axis-- > 0;) {
      if (states[axis] == AxisState::shard(dim)) counts.push_back(grid.size(axis));
    }
    std::vector<int64_t> parts = Split(units[dim], counts).sizes();
    for (int64_t& part : parts) part *= unit[dim];
    sizes.push_back({dim, parts});
  }
  return *Layout::create(grid, shape, states, sizes);
}

// One search serves every length: short, empty and ragged ones among them.
TEST(TransitionForm, KeepsValuesAndGradientsOfTensorsOfAnyLength) {
  std::mt19937_64 random(7);
  size_t tried = 0;
  for (const std::vector<int64_t>& axes :
       std::vector<std::vector<int64_t>>{{2}, {3}, {1, 2}, {2, 2}, {3, 2}, {2, 1, 3}, {2, 2, 2}}) {
    const AxisGrid grid = grid_of(axes);
    for (int pair = 0; pair < draws(60); ++pair) {
      const size_t num_dims = 1 + random() % 3;
      const std::vector<int64_t> any(num_dims, 1);
      const std::vector<AxisState> from = random_layout(grid, any, random).states();
      const std::vector<AxisState> to = random_layout(grid, any, random).states();
      const TransitionForm form(grid, num_dims, from, to);
      for (int lengths = 0; lengths < 4; ++lengths) {
        std::vector<int64_t> units, unit;
        for (size_t dim = 0; dim < num_dims; ++dim) {
          units.push_back(static_cast<int64_t>(random() % 6));
          unit.push_back(1 + static_cast<int64_t>(random() % 3));
        }
        const auto layout_of = [&](const std::vector<AxisState>& states) { return cut(grid, units, unit, states); };
        const auto draw = [&] { return static_cast<double>(random() % 1000) - 500; };
        const SimulatedTensor before = fill(layout_of(from), draw);
        const SimulatedTensor slope = fill(layout_of(to).gradient(), draw);
        const SimulatedTensor after = execute(form.forward(layout_of), before);
        const SimulatedTensor back = execute(form.adjoint(layout_of), slope);
        ASSERT_EQ(logical_value(after), logical_value(before));
        ASSERT_EQ(pairing(after, slope), pairing(before, back));
        ++tried;
      }
    }
  }
  EXPECT_GT(tried, 1000u);
}

TEST(TransitionForm, IsAsCheapAsAPlanForLengthsThatAreCutEvenly) {
  std::mt19937_64 random(11);
  for (const std::vector<int64_t>& axes : std::vector<std::vector<int64_t>>{{4}, {2, 3}, {2, 2, 2}}) {
    const AxisGrid grid = grid_of(axes);
    const std::vector<int64_t> units{48, 96}, unit{1, 1};
    for (int pair = 0; pair < 100; ++pair) {
      const std::vector<AxisState> from = random_layout(grid, units, random).states();
      const std::vector<AxisState> to = random_layout(grid, units, random).states();
      const auto layout_of = [&](const std::vector<AxisState>& states) { return cut(grid, units, unit, states); };
      const Transition best = plan_transition(layout_of(from), layout_of(to));
      const TransitionForm form(grid, 2, from, to);
      const auto received = [&](const std::vector<Step>& steps) {
        int64_t most = 0;
        for (int64_t position = 0; position < grid.num_positions(); ++position)
          most = std::max(most, traffic_of(steps, position).received);
        return most;
      };
      EXPECT_EQ(received(form.forward(layout_of)), received(best.forward)) << text(best.forward);
      EXPECT_EQ(received(form.adjoint(layout_of)), received(best.adjoint)) << text(best.adjoint);
    }
  }
}

TEST(TransitionForm, IsPlainWhereNobodyGetsAnythingElse) {
  const AxisGrid grid = grid_of({1, 2});
  const AxisState r = AxisState::replicated(), g = AxisState::replicated_partial_grad(), s = AxisState::shard(0);
  EXPECT_TRUE(TransitionForm(grid, 1, {r, s}, {r, s}).is_plain());
  EXPECT_TRUE(TransitionForm(grid, 1, {r, s}, {s, s}).is_plain());   // the first axis has one rank
  EXPECT_FALSE(TransitionForm(grid, 1, {r, r}, {r, g}).is_plain());  // gradients are summed
  EXPECT_FALSE(TransitionForm(grid, 1, {r, r}, {r, s}).is_plain());
}

// Dims that no state shards have no place in the search where all together would have too many elements.
TEST(TransitionForm, HasNoMoreDimsThanRanksAllow) {
  const AxisState r = AxisState::replicated(), p = AxisState::partial();
  for (const int64_t ranks : {64, 5000}) {
    const AxisGrid grid = grid_of({ranks});
    for (const AxisState from : {r, p, AxisState::shard(7)}) {
      for (const AxisState to : {r, AxisState::shard(3), AxisState::shard(7)}) {
        std::vector<int64_t> shape(8, 1);
        shape[3] = shape[7] = ranks;
        const auto layout_of = [&](const std::vector<AxisState>& states) {
          return *Layout::create(grid, shape, states);
        };
        const TransitionForm form(grid, 8, {from}, {to});
        const Transition best = plan_transition(layout_of({from}), layout_of({to}));
        const std::vector<Step> steps = form.forward(layout_of);
        EXPECT_EQ(traffic_of(steps, 0).received, traffic_of(best.forward, 0).received) << text(steps);
        if (!steps.empty()) {
          EXPECT_EQ(steps.back().after.states(), std::vector<AxisState>{to});
        }
      }
    }
  }
}

// A tensor with many dims takes the steps that one of its cut dims alone takes.
TEST(TransitionForm, KeepsValuesWhereOnlySomeDimsAreSearched) {
  const AxisGrid grid = grid_of({8, 8});
  const AxisState r = AxisState::replicated();
  std::mt19937_64 random(3);
  const std::vector<int64_t> shape{1, 2, 1, 3, 1, 1, 5, 9};
  const auto layout_of = [&](const std::vector<AxisState>& states) { return *Layout::create(grid, shape, states); };
  for (const std::vector<AxisState>& from : {std::vector<AxisState>{AxisState::shard(7), r},
                                             {AxisState::shard(7), AxisState::shard(6)},
                                             {AxisState::partial(), AxisState::shard(3)}}) {
    for (const std::vector<AxisState>& to :
         {std::vector<AxisState>{r, AxisState::shard(7)}, {AxisState::shard(1), AxisState::shard(7)}, {r, r}}) {
      const auto draw = [&] { return static_cast<double>(random() % 1000) - 500; };
      const TransitionForm form(grid, shape.size(), from, to);
      const SimulatedTensor before = fill(layout_of(from), draw);
      const SimulatedTensor slope = fill(layout_of(to).gradient(), draw);
      const SimulatedTensor after = execute(form.forward(layout_of), before);
      const SimulatedTensor back = execute(form.adjoint(layout_of), slope);
      EXPECT_EQ(logical_value(after), logical_value(before));
      EXPECT_EQ(pairing(after, slope), pairing(before, back));
    }
  }
}

}  // namespace
}  // namespace weft::transition_form_test
