#include <algorithm>
#include <bit>
#include <limits>
#include <optional>
#include <random>

#include <gtest/gtest.h>

#include "tests/support/draws.h"
#include "tests/support/mesh/all_layouts.h"
#include "weft/mesh/transition.h"

// An exhaustive search over sequences of steps that shares nothing with the planner but the layouts: which steps there
// are and what they bring to each rank is worked out from sets of indices.

namespace weft {
namespace {

using IndexSet = uint32_t;  // indices of a dim as bits

struct Price {
  int64_t received = 0;
  int64_t num_steps = 0;

  auto operator<=>(const Price&) const = default;
};

constexpr Price kUnreachable{std::numeric_limits<int64_t>::max(), 0};

/// What every rank holds, as a set of indices per dim.
struct Holding {
  Layout layout;
  std::vector<std::vector<IndexSet>> sets;  // by position and dim

  explicit Holding(const Layout& given) : layout(given) {
    for (int64_t position = 0; position < layout.grid().num_positions(); ++position) {
      std::vector<IndexSet>& row = sets.emplace_back();
      for (const Range range : layout.box(position)) row.push_back(((IndexSet{1} << range.size()) - 1) << range.begin);
    }
  }
};

int64_t count(const std::vector<IndexSet>& sets) {
  int64_t product = 1;
  for (const IndexSet set : sets) product *= std::popcount(set);
  return product;
}

int64_t count_common(const std::vector<IndexSet>& a, const std::vector<IndexSet>& b) {
  int64_t product = 1;
  for (size_t dim = 0; dim < a.size(); ++dim) product *= std::popcount(a[dim] & b[dim]);
  return product;
}

/// The union of what the group has, dim by dim, or nothing if members that differ in a dim overlap there.
std::optional<std::vector<IndexSet>> joined(const Holding& holding, const std::vector<size_t>& group) {
  std::vector<IndexSet> all = holding.sets[group[0]];
  for (size_t dim = 0; dim < all.size(); ++dim) {
    for (const size_t member : group) {
      const IndexSet set = holding.sets[member][dim];
      bool is_new = true;
      for (const size_t earlier : group) {
        if (earlier == member) break;
        if (holding.sets[earlier][dim] == set) is_new = false;
      }
      if (member == group[0] || !is_new) continue;
      if ((all[dim] & set) != 0) return std::nullopt;
      all[dim] |= set;
    }
  }
  return all;
}

bool is_inside(const std::vector<IndexSet>& a, const std::vector<IndexSet>& b) {
  for (size_t dim = 0; dim < a.size(); ++dim) {
    if ((a[dim] & ~b[dim]) != 0) return false;
  }
  return true;
}

/// The dim that all these axes shard, or nothing.
std::optional<size_t> common_dim(const Layout& layout, const AxisList& axes) {
  for (const size_t axis : axes) {
    if (!layout.state(axis).is_shard() || layout.state(axis).dim != layout.state(axes[0]).dim) return std::nullopt;
  }
  return layout.state(axes[0]).dim;
}

bool all_of(const Layout& layout, const AxisList& axes, bool (AxisState::*is)() const) {
  return std::all_of(axes.begin(), axes.end(), [&](size_t axis) { return (layout.state(axis).*is)(); });
}

/// What the busiest rank receives in the one step over exactly these axes from one layout to another; nothing where
/// there is no such step.
std::optional<int64_t> step_over(const AxisList& axes, const Holding& before, const Holding& after) {
  const AxisGrid& grid = before.layout.grid();
  const std::optional<size_t> from_dim = common_dim(before.layout, axes);
  const std::optional<size_t> to_dim = common_dim(after.layout, axes);
  const bool from_partial = all_of(before.layout, axes, &AxisState::is_partial);
  const bool from_copies = all_of(before.layout, axes, &AxisState::is_replicated);
  const bool to_partial = all_of(after.layout, axes, &AxisState::is_partial);
  const bool to_copies = all_of(after.layout, axes, &AxisState::is_replicated);
  if (!(from_dim || from_partial || from_copies) || !(to_dim || to_partial || to_copies)) return std::nullopt;
  if (from_partial && to_partial) return std::nullopt;

  const std::vector<int64_t> offsets = grid.group_offsets(axes);
  int64_t busiest = 0;
  for (int64_t position = 0; position < grid.num_positions(); ++position) {
    std::vector<size_t> group;
    for (const int64_t offset : offsets) group.push_back(static_cast<size_t>(grid.group_base(position, axes) + offset));
    const auto me = static_cast<size_t>(position);
    const size_t index = static_cast<size_t>(std::find(group.begin(), group.end(), me) - group.begin());
    const size_t previous = group[(index + group.size() - 1) % group.size()];
    const std::vector<IndexSet>& had = before.sets[me];
    const std::vector<IndexSet>& gets = after.sets[me];
    const auto all_before = joined(before, group);
    const auto all_after = joined(after, group);
    if (!all_before || !all_after) return std::nullopt;
    // Shards come to or from the same whole on all ranks of the group; a slice or scatter leaves no index behind.
    if (*all_before != *all_after) return std::nullopt;

    int64_t received = 0;
    if (from_dim && to_dim) {  // all-to-all
      received = count(gets) - count_common(had, gets);
    } else if (from_dim && to_copies) {  // all-gather
      received = count(gets) - count(had);
    } else if (from_dim && to_partial) {  // zero-pad of a shard
      if (!is_inside(had, gets)) return std::nullopt;
    } else if (from_partial && to_dim) {  // reduce-scatter
      received = count(had) - count(after.sets[previous]);
    } else if (from_partial && to_copies) {  // all-reduce: a scatter and a gather of flat chunks
      const auto num_ranks = static_cast<int64_t>(group.size());
      const auto chunk = [&](size_t i) {
        return count(had) / num_ranks + (static_cast<int64_t>(i) < count(had) % num_ranks ? 1 : 0);
      };
      received = 2 * count(had) - chunk(index) - chunk((index + group.size() - 1) % group.size());
    }
    busiest = std::max(busiest, received);
  }
  return busiest;
}

/// The cheapest single step between two layouts. Where states stay shards and only the sizes of parts change, the step
/// may be among more axes than those whose states change.
std::optional<int64_t> cheapest_step(const Holding& before, const Holding& after) {
  const size_t num_axes = before.layout.grid().num_axes();
  std::optional<int64_t> cheapest;
  for (unsigned mask = 1; mask < 1u << num_axes; ++mask) {
    AxisList axes;
    bool covers_changes = true;
    for (size_t axis = 0; axis < num_axes; ++axis) {
      if ((mask >> axis & 1) != 0) {
        axes.push_back(axis);
      } else if (before.layout.state(axis) != after.layout.state(axis)) {
        covers_changes = false;
      }
    }
    if (!covers_changes) continue;
    const bool same_states = before.layout.states() == after.layout.states();
    const bool each_changes = std::all_of(
        axes.begin(), axes.end(), [&](size_t axis) { return before.layout.state(axis) != after.layout.state(axis); });
    if (!same_states && !each_changes) continue;
    if (same_states && !common_dim(before.layout, axes)) continue;
    const std::optional<int64_t> received = step_over(axes, before, after);
    if (received && (!cheapest || *received < *cheapest)) cheapest = received;
  }
  return cheapest;
}

/// For every pair of layouts, the least price over all sequences of steps through the given layouts: sequences grow
/// step by step until no longer one is better than a shorter one.
std::vector<std::vector<Price>> least_prices(const std::vector<Layout>& layouts) {
  std::vector<Holding> holdings(layouts.begin(), layouts.end());
  const size_t n = layouts.size();
  std::vector<std::vector<std::pair<size_t, int64_t>>> steps(n);
  for (size_t a = 0; a < n; ++a) {
    for (size_t b = 0; b < n; ++b) {
      if (a == b) continue;
      if (const auto received = cheapest_step(holdings[a], holdings[b])) steps[a].emplace_back(b, *received);
    }
  }
  std::vector<std::vector<Price>> least(n, std::vector<Price>(n, kUnreachable));
  for (size_t source = 0; source < n; ++source) {
    std::vector<Price>& row = least[source];
    row[source] = {};
    for (bool is_better = true; is_better;) {
      is_better = false;
      const std::vector<Price> shorter = row;
      for (size_t a = 0; a < n; ++a) {
        if (shorter[a] == kUnreachable) continue;
        for (const auto& [b, received] : steps[a]) {
          const Price price{shorter[a].received + received, shorter[a].num_steps + 1};
          if (price < row[b]) {
            row[b] = price;
            is_better = true;
          }
        }
      }
    }
  }
  return least;
}

void expect_price(const Layout& from, const Layout& to, Price best) {
  const std::vector<Step> steps = plan_steps(from, to);
  const Price planned{busiest_received(steps), static_cast<int64_t>(steps.size())};
  EXPECT_TRUE(planned == best) << from.text() << "\n  to " << to.text() << "\n  by " << text(steps) << "\n  brings "
                               << planned.received << " in " << planned.num_steps << " steps; possible are "
                               << best.received << " in " << best.num_steps;
}

void expect_optimal(const std::vector<Layout>& layouts, size_t every = 1) {
  const std::vector<std::vector<Price>> least = least_prices(layouts);
  for (size_t i = 0; i < layouts.size() * layouts.size(); i += every) {
    const size_t from = i / layouts.size();
    const size_t to = i % layouts.size();
    expect_price(layouts[from], layouts[to], least[from][to]);
  }
}

using Sizes = std::vector<int64_t>;

TEST(Transition, NoSequenceOfStepsIsCheaperForAnyPairOnOneAxis) {
  for (const int64_t size : {2, 3, 5, 8}) {
    for (const Sizes& shape : {Sizes{}, {8}, {5}, {1}, {0}, {4, 6}, {5, 3}, {1, 2}, {0, 4}, {3, 2, 4}})
      expect_optimal(all_layouts(grid_of({size}), shape));
  }
}

TEST(Transition, NoSequenceOfStepsIsCheaperForAnyPairOnTwoAxes) {
  for (const Sizes& mesh : {Sizes{2, 2}, {3, 2}, {2, 3}, {4, 2}, {2, 4}}) {
    for (const Sizes& shape : {Sizes{8, 8}, {5, 3}, {1, 2}, {0, 3}, {7}, {4, 2, 3}})
      expect_optimal(all_layouts(grid_of(mesh), shape));
  }
}

TEST(Transition, NoSequenceOfStepsIsCheaperForAnyPairOnThreeAxes) {
  if (kIsSanitized) GTEST_SKIP() << "left to the optimised build: a proof by brute force";
  for (const Sizes& shape : {Sizes{8, 8}, {5, 3}}) expect_optimal(all_layouts(grid_of({2, 2, 2}), shape));
}

TEST(Transition, NoSequenceOfStepsIsCheaperForASampleOfPairsOnThreeAxesAndThreeDims) {
  expect_optimal(all_layouts(grid_of({2, 2, 2}), {4, 5, 2}), 17);
}

/// All ways to write `length` as `parts` summands.
std::vector<Sizes> all_sizes(int64_t length, int64_t parts) {
  if (parts == 1) return {{length}};
  std::vector<Sizes> all;
  for (int64_t first = 0; first <= length; ++first) {
    for (Sizes sizes : all_sizes(length - first, parts - 1)) {
      sizes.insert(sizes.begin(), first);
      all.push_back(std::move(sizes));
    }
  }
  return all;
}

/// Every layout of one dim with every possible sizes of parts.
std::vector<Layout> all_ragged_layouts(const AxisGrid& grid, int64_t length) {
  std::vector<Layout> layouts;
  for (const Layout& layout : all_layouts(grid, {length})) {
    for (const Sizes& sizes : all_sizes(length, layout.split(0).num_parts()))
      layouts.push_back(*Layout::create(grid, {length}, layout.states(), {{0, sizes}}));
  }
  return layouts;
}

TEST(Transition, NoSequenceOfStepsThroughAnyPartSizesIsCheaperForRaggedLayoutsOnOneAxis) {
  expect_optimal(all_ragged_layouts(grid_of({2}), 6));
  expect_optimal(all_ragged_layouts(grid_of({3}), 5));
  expect_optimal(all_ragged_layouts(grid_of({4}), 3));
}

/// What a layout's part sizes say about a cut over other axes of a mesh of two, the second being the outer one: about
/// the outer axis alone and about both, but nothing about the inner one alone unless only it is cut.
std::optional<Sizes> sizes_from(const Layout& layout, const AxisList& axes) {
  const AxisList& own = layout.shard_axes(0);
  const Sizes sizes = layout.split(0).sizes();
  if (own.empty()) return std::nullopt;
  if (own == axes) return sizes;
  const int64_t inner = layout.grid().size(0);
  Sizes derived;
  if (own == AxisList{0, 1} && axes == AxisList{1}) {
    for (size_t i = 0; i < sizes.size(); ++i) {
      if (static_cast<int64_t>(i) % inner == 0) derived.push_back(0);
      derived.back() += sizes[i];
    }
    return derived;
  }
  if (own == AxisList{1} && axes == AxisList{0, 1}) {
    for (const int64_t size : sizes) {
      for (int64_t i = 0; i < inner; ++i) derived.push_back(size / inner + (i < size % inner ? 1 : 0));
    }
    return derived;
  }
  return std::nullopt;
}

TEST(Transition, NoSequenceThroughBalancedOrGivenPartSizesIsCheaperForASampleOfRaggedPairsOnTwoAxes) {
  std::mt19937_64 random(3);
  for (int round = 0; round < draws(600); ++round) {
    const std::vector<Sizes> meshes{{2, 2}, {3, 2}, {2, 3}, {4, 2}, {2, 4}};
    const AxisGrid grid = grid_of(meshes[random() % meshes.size()]);
    const auto length = static_cast<int64_t>(random() % 12);
    const Layout from = with_random_sizes(random_layout(grid, {length}, random), random);
    const Layout to = random_layout(grid, {length}, random);
    std::vector<Layout> layouts{from};
    const auto add = [&](const Layout& layout) {
      if (std::find(layouts.begin(), layouts.end(), layout) == layouts.end()) layouts.push_back(layout);
    };
    add(to);
    for (const Layout& layout : all_layouts(grid, {length})) {
      add(layout);
      for (const Layout* given : {&from, &to}) {
        if (const auto sizes = sizes_from(*given, layout.shard_axes(0)))
          add(*Layout::create(grid, {length}, layout.states(), {{0, *sizes}}));
      }
    }
    expect_price(from, to, least_prices(layouts)[0][from == to ? 0 : 1]);
  }
}

}  // namespace
}  // namespace weft
