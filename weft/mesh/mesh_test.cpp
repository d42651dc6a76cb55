#include "weft/mesh/mesh.h"

#include <algorithm>
#include <numeric>
#include <set>

#include <gtest/gtest.h>

namespace weft {
namespace {

using Ranks = std::vector<int64_t>;
using Groups = std::vector<Ranks>;

TEST(Mesh, TheFirstAxisIsInnermost) {
  const Mesh mesh = *Mesh::contiguous({{"tp", 2}, {"dp", 3}});
  EXPECT_EQ(mesh.num_ranks(), 6);
  EXPECT_EQ(mesh.groups({0}), (Groups{{0, 1}, {2, 3}, {4, 5}}));
  EXPECT_EQ(mesh.groups({1}), (Groups{{0, 2, 4}, {1, 3, 5}}));
}

TEST(Mesh, RanksMayBeAnyInAnyOrder) {
  const Mesh mesh = *Mesh::create({{"tp", 2}, {"dp", 2}}, {90, 7, 8, 3});
  EXPECT_EQ(mesh.coordinates_of(8), (Ranks{0, 1}));
  EXPECT_EQ(mesh.rank_at(Ranks{1, 0}), 7);
  EXPECT_EQ(mesh.position_of(3), 3);
  EXPECT_EQ(mesh.groups({1}), (Groups{{90, 8}, {7, 3}}));
  EXPECT_FALSE(mesh.contains(0));
  EXPECT_FALSE(mesh.find(89).has_value());
  EXPECT_THROW((void)mesh.position_of(0), InternalError);
}

TEST(Mesh, EveryRankFindsItsCoordinatesAndBack) {
  const Mesh mesh = *Mesh::contiguous({{"cp", 3}, {"pp", 2}, {"tp", 4}, {"dp", 5}}, 1000);
  for (const int64_t rank : mesh.ranks()) {
    EXPECT_EQ(mesh.rank_at(mesh.coordinates_of(rank)), rank);
    for (const AxisList& axes : {AxisList{}, AxisList{2}, AxisList{0, 3}, AxisList{3, 1, 0}}) {
      const Ranks group = mesh.group_of(rank, axes);
      EXPECT_EQ(static_cast<int64_t>(group.size()), mesh.grid().group_size(axes));
      const int64_t index = mesh.grid().group_index(mesh.position_of(rank), axes);
      EXPECT_EQ(group[static_cast<size_t>(index)], rank);
      EXPECT_EQ(mesh.rank_at(mesh.grid().group_member(mesh.position_of(rank), axes, index)), rank);
    }
  }
}

TEST(Mesh, JoinedAxesKeepTheMeshsOrderWhateverTheOrderOfTheList) {
  const Mesh mesh = *Mesh::contiguous({{"tp", 2}, {"cp", 2}, {"dp", 2}});
  EXPECT_EQ(mesh.groups({0, 2}), (Groups{{0, 1, 4, 5}, {2, 3, 6, 7}}));
  EXPECT_EQ(mesh.groups({2, 0}), mesh.groups({0, 2}));
  EXPECT_EQ(mesh.groups({}).size(), 8u);
  EXPECT_EQ(mesh.groups(mesh.grid().all_axes()).size(), 1u);
  EXPECT_EQ(mesh.groups(mesh.grid().axes_named({"dp", "tp"})), mesh.groups({0, 2}));
  EXPECT_EQ(mesh.group_of(6, {0, 2}), (Ranks{2, 3, 6, 7}));
}

TEST(Mesh, ASubMeshKeepsTheAxesThatAreNotFixed) {
  const Mesh mesh = *Mesh::contiguous({{"tp", 2}, {"dp", 2}, {"pp", 2}}, 10);
  const std::vector<std::pair<size_t, int64_t>> last_stage{{2, 1}};
  EXPECT_EQ(mesh.sub_mesh(last_stage), *Mesh::contiguous({{"tp", 2}, {"dp", 2}}, 14));
  EXPECT_EQ(mesh.sub_mesh_around(13, {0, 2}), *Mesh::create({{"tp", 2}, {"pp", 2}}, {12, 13, 16, 17}));
  const std::vector<std::pair<size_t, int64_t>> one{{0, 1}, {1, 1}, {2, 0}};
  EXPECT_EQ(mesh.sub_mesh(one).num_ranks(), 1);
  EXPECT_EQ(mesh.sub_mesh(one).rank_at(0), 13);
}

TEST(Mesh, MistakesShowTheArithmetic) {
  const auto problem = [](const std::vector<Axis>& axes, Ranks ranks) {
    const Result<Mesh> mesh = Mesh::create(axes, std::move(ranks));
    return mesh ? "" : mesh.error().message();
  };
  EXPECT_EQ(problem({{"tp", 4}, {"dp", 2}}, {0, 1, 2}), "tp 4 × dp 2 = 8, but there are 3 ranks");
  EXPECT_EQ(problem({{"tp", 2}}, {5}), "tp 2 = 2, but there is 1 rank");
  EXPECT_EQ(problem({{"tp", 2}}, {5, 5}), "rank 5 is in the mesh twice");
  EXPECT_EQ(problem({{"tp", 2}}, {5, -1}), "rank -1 is negative");
  EXPECT_EQ(problem({{"tp", 0}}, {}), "axis 'tp' has size 0, at least 1 is needed");
  EXPECT_EQ(problem({{"tp", 1}, {"tp", 1}}, {0}), "axis 'tp' is given twice");
  EXPECT_EQ(problem({{"", 1}}, {0}), "an axis of a mesh has no name");
  EXPECT_EQ(problem({{"a", int64_t{1} << 40}, {"b", int64_t{1} << 40}}, {0}),
            "a 1099511627776 is more than 16,777,216 ranks");
  EXPECT_NE(problem(std::vector<Axis>(9, {"x", 1}), {0}), "");
}

TEST(Mesh, TheDefaultOrderPutsTensorParallelRanksNextToEachOther) {
  EXPECT_EQ(default_axis_order(), (std::vector<std::string>{"tp", "cp", "dp", "pp"}));
}

TEST(Mesh, ExpertsAreCarvedFromNeighboursOfCpAndDp) {
  const Mesh mesh = *Mesh::contiguous({{"tp", 2}, {"cp", 2}, {"dp", 4}, {"pp", 2}});
  const Mesh experts = *expert_view(mesh, 4);
  EXPECT_EQ(experts.axes(), (std::vector<Axis>{{"tp", 2}, {"ep", 4}, {"edp", 2}, {"pp", 2}}));
  EXPECT_TRUE(std::ranges::equal(experts.ranks(), mesh.ranks()));
  EXPECT_EQ(experts.group_of(0, {1}), (Ranks{0, 2, 4, 6}));
  EXPECT_EQ(experts.group_of(0, {2}), (Ranks{0, 8}));
}

TEST(Mesh, ExpertsAreCarvedFromAnyAxisOrder) {
  std::vector<std::string> order = default_axis_order();
  std::sort(order.begin(), order.end());
  do {
    std::vector<Axis> axes;
    for (const std::string& name : order) axes.push_back({name, name == "pp" ? 3 : name == "cp" ? 4 : 2});
    const Mesh mesh = *Mesh::contiguous(axes, 5);
    for (const int64_t ep : {1, 2, 4, 8}) {
      const Mesh experts = *expert_view(mesh, ep);
      EXPECT_EQ(std::set<int64_t>(experts.ranks().begin(), experts.ranks().end()).size(), 48u);
      const AxisGrid& grid = mesh.grid();
      for (const int64_t rank : mesh.ranks()) {
        // tp and pp are untouched, and the place among the joined cp and dp is edp · ep + ep.
        const AxisGrid& carved = experts.grid();
        const int64_t at = mesh.position_of(rank);
        const int64_t there = experts.position_of(rank);
        for (const char* name : {"tp", "pp"})
          EXPECT_EQ(grid.coordinate(at, grid.axis(name)), carved.coordinate(there, carved.axis(name)));
        EXPECT_EQ(grid.group_index(at, grid.axes_named({"cp", "dp"})),
                  carved.coordinate(there, carved.axis("edp")) * ep + carved.coordinate(there, carved.axis("ep")));
      }
    }
  } while (std::next_permutation(order.begin(), order.end()));
}

TEST(Mesh, ExpertsAreCarvedFromTensorParallelRanksToo) {
  const Mesh mesh = *Mesh::contiguous({{"tp", 2}, {"cp", 2}, {"dp", 4}, {"pp", 2}});
  const Mesh experts = *expert_view(mesh, 8, /*over_tp=*/true);
  EXPECT_EQ(experts.axes(), (std::vector<Axis>{{"ep", 8}, {"edp", 2}, {"pp", 2}}));
  EXPECT_TRUE(std::ranges::equal(experts.ranks(), mesh.ranks()));
  EXPECT_EQ(experts.group_of(3, {0}), (Ranks{0, 1, 2, 3, 4, 5, 6, 7}));
  EXPECT_EQ(experts.group_of(3, {1}), (Ranks{3, 11}));
  // Neighbours among the joined axes, also where pp lies between them.
  const Mesh apart = *expert_view(*Mesh::contiguous({{"tp", 2}, {"pp", 2}, {"dp", 2}}), 4, /*over_tp=*/true);
  EXPECT_EQ(apart.axes(), (std::vector<Axis>{{"ep", 4}, {"pp", 2}, {"edp", 1}}));
  EXPECT_EQ(apart.group_of(0, {0}), (Ranks{0, 1, 4, 5}));
  EXPECT_EQ(expert_view(mesh, 3, /*over_tp=*/true).error().message(),
            "ep is 3, which does not divide tp 2 × cp 2 × dp 4 = 16");
}

TEST(Mesh, ExpertsThatDoNotDivideTheirRanksAreRefused) {
  const Mesh mesh = *Mesh::contiguous({{"cp", 2}, {"dp", 3}});
  EXPECT_EQ(expert_view(mesh, 4).error().message(), "ep is 4, which does not divide cp 2 × dp 3 = 6");
  EXPECT_EQ(expert_view(*Mesh::contiguous({{"dp", 3}}), 0).error().message(), "ep is 0, which does not divide dp 3");
  EXPECT_EQ(expert_view(*Mesh::contiguous({{"pp", 3}}), 1).error().message(),
            "pp 3 has neither cp nor dp to carve ep from");
  EXPECT_EQ(expert_view(*Mesh::contiguous({{"dp", 6}}), 3)->axes(), (std::vector<Axis>{{"ep", 3}, {"edp", 2}}));
}

TEST(Mesh, SixteenThousandRanksAreListedOncePerGrouping) {
  const Mesh mesh = *Mesh::contiguous({{"tp", 8}, {"cp", 4}, {"dp", 32}, {"pp", 16}});
  ASSERT_EQ(mesh.num_ranks(), 16384);
  for (unsigned mask = 0; mask < 16; ++mask) {
    AxisList axes;
    for (size_t axis = 0; axis < 4; ++axis) {
      if ((mask >> axis & 1) != 0) axes.push_back(axis);
    }
    int64_t sum = 0;
    for (const Ranks& group : mesh.groups(axes)) sum += std::accumulate(group.begin(), group.end(), int64_t{0});
    EXPECT_EQ(sum, int64_t{16384} * 16383 / 2);
  }
}

}  // namespace
}  // namespace weft
