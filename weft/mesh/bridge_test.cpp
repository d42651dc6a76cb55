#include "weft/mesh/bridge.h"

#include <algorithm>
#include <numeric>
#include <set>

#include <gtest/gtest.h>

#include "tests/support/draws.h"
#include "tests/support/mesh/simulated_tensor.h"
#include "weft/mesh/all_layouts.h"

namespace weft {
namespace {

using States = std::vector<AxisState>;

const AxisState kP = AxisState::partial();
const AxisState kR = AxisState::replicated();
const AxisState kG = AxisState::replicated_partial_grad();

AxisState s(size_t dim) {
  return AxisState::shard(dim);
}

Mesh line(int64_t size, int64_t first_rank = 0) {
  return *Mesh::contiguous({{"a", size}}, first_rank);
}

Layout on(const Mesh& mesh, std::vector<int64_t> shape, States states, const std::vector<PartSizes>& sizes = {}) {
  return *Layout::create(mesh.grid(), std::move(shape), std::move(states), sizes);
}

TEST(Bridge, RowsGoFromWhoHasThemToWhoNeedsThem) {
  // Two encoder ranks with 5 and 1 rows, three others that want 2 rows each.
  const Mesh encoder = line(2);
  const Mesh llm = line(3, 10);
  const Route route = plan_route(encoder, on(encoder, {6, 4}, {s(0)}, {{0, {5, 1}}}), llm, on(llm, {6, 4}, {s(0)}));
  EXPECT_TRUE(route.reduce.empty());
  EXPECT_TRUE(route.kept.empty());
  EXPECT_EQ(
      route.messages,
      (std::vector<Message>{
          {0, 10, {{0, 2}, {0, 4}}}, {0, 11, {{2, 4}, {0, 4}}}, {0, 12, {{4, 5}, {0, 4}}}, {1, 12, {{5, 6}, {0, 4}}}}));
  const auto traffic = message_traffic(route);
  EXPECT_EQ(traffic.at(0), (Traffic{20, 0}));
  EXPECT_EQ(traffic.at(12), (Traffic{0, 8}));
}

TEST(Bridge, WhatARankAlreadyHasStaysThere) {
  const Mesh mesh = line(2);
  const Route same = plan_route(mesh, on(mesh, {4}, {s(0)}), mesh, on(mesh, {4}, {s(0)}));
  EXPECT_TRUE(same.messages.empty());
  EXPECT_EQ(same.kept, (std::vector<KeptBlock>{{0, {{0, 2}}}, {1, {{2, 4}}}}));

  const Mesh shifted = line(2, 1);
  const Route overlap = plan_route(mesh, on(mesh, {4}, {s(0)}), shifted, on(shifted, {4}, {kR}));
  EXPECT_EQ(overlap.messages, (std::vector<Message>{{0, 1, {{0, 2}}}, {0, 2, {{0, 2}}}, {1, 2, {{2, 4}}}}));
  EXPECT_EQ(overlap.kept, (std::vector<KeptBlock>{{1, {{2, 4}}}}));
}

TEST(Bridge, CopiesShareTheSending) {
  const Mesh from = line(4);
  const Mesh to = line(8, 4);
  const Route route = plan_route(from, on(from, {16}, {kR}), to, on(to, {16}, {kR}));
  EXPECT_EQ(route.messages.size(), 8u);
  const auto traffic = message_traffic(route);
  for (int64_t rank = 0; rank < 4; ++rank) EXPECT_EQ(traffic.at(rank).sent, 32);
}

TEST(Bridge, NotAllBlocksComeFromTheFirstCopy) {
  // Four blocks with four copies each, and one receiver for each block.
  const Mesh from = *Mesh::contiguous({{"a", 4}, {"b", 4}});
  const Mesh to = line(4, 16);
  const Route route = plan_route(from, on(from, {8}, {s(0), kR}), to, on(to, {8}, {s(0)}));
  std::set<int64_t> copies;
  for (const Message& message : route.messages) copies.insert(message.from_rank / 4);
  EXPECT_EQ(copies.size(), 4u);
}

TEST(Bridge, ACopyOnTheReceiversNodeSends) {
  // Copies on nodes 0, 1, 2 and 3, receivers on the same nodes and one on a node without a copy.
  const Mesh from = *Mesh::create({{"a", 4}}, {0, 2, 4, 6});
  const Mesh to = *Mesh::create({{"a", 5}}, {7, 5, 3, 1, 9});
  const Topology topology = *Topology::uniform(2, 1);
  const Route route = plan_route(from, on(from, {3}, {kR}), to, on(to, {3}, {kR}), &topology);
  ASSERT_EQ(route.messages.size(), 5u);
  for (const Message& message : route.messages) {
    EXPECT_TRUE(message.to_rank == 9 || message.from_rank == message.to_rank - 1);
  }
}

TEST(Bridge, APartialSourceIsReducedFirst) {
  const Mesh from = line(4);
  const Mesh to = line(4, 4);
  const Route route = plan_route(from, on(from, {8, 2}, {kP}), to, on(to, {8, 2}, {s(0)}));
  // Scattering brings half of what an all-reduce would, and each rank has something to send.
  EXPECT_EQ(text(route.reduce), "reduce-scatter of dim 0 over a");
  EXPECT_EQ(route.messages.size(), 4u);
}

TEST(Bridge, APartialTargetIsHeldByItsFirstRank) {
  const Mesh from = line(2);
  const Mesh to = line(3, 2);
  const Route route = plan_route(from, on(from, {4}, {s(0)}), to, on(to, {4}, {kP}));
  EXPECT_EQ(route.messages, (std::vector<Message>{{0, 2, {{0, 2}}}, {1, 2, {{2, 4}}}}));
}

TEST(Bridge, GradientsOfCopiesAreSummedOrTakenOnceByTheirState) {
  const Mesh from = line(2);
  const Mesh to = line(2, 2);
  const Layout source = on(from, {4}, {s(0)});
  const Bridge once = plan_bridge(from, source, to, on(to, {4}, {kR}));
  EXPECT_TRUE(once.adjoint.reduce.empty());
  EXPECT_EQ(once.adjoint.messages.size(), 2u);
  const Bridge summed = plan_bridge(from, source, to, on(to, {4}, {kG}));
  EXPECT_EQ(text(summed.adjoint.reduce), "reduce-scatter of dim 0 over a");
  EXPECT_EQ(summed.adjoint.messages.size(), 2u);
}

TEST(Bridge, EmptyTensorsAndTensorsWithoutDimsWork) {
  const Mesh from = line(3);
  const Mesh to = line(2, 2);
  EXPECT_TRUE(plan_route(from, on(from, {0, 4}, {s(1)}), to, on(to, {0, 4}, {kR})).messages.empty());
  const Route scalar = plan_route(from, on(from, {}, {kP}), to, on(to, {}, {kP}));
  EXPECT_EQ(text(scalar.reduce), "all-reduce over a");
  EXPECT_TRUE(scalar.messages.empty());
  EXPECT_EQ(scalar.kept, (std::vector<KeptBlock>{{2, {}}}));
}

TEST(Bridge, LayoutsThatDoNotBelongTogetherAreRefused) {
  const Mesh two = line(2);
  const Mesh three = line(3);
  EXPECT_THROW(plan_route(two, on(two, {4}, {kR}), three, on(three, {5}, {kR})), InternalError);
  EXPECT_THROW(plan_route(two, on(two, {4}, {kR}), three, on(two, {4}, {kR})), InternalError);
}

/// Two meshes among 8 ranks, each of up to 8, and a tensor in a layout on each.
struct Case {
  Mesh from_mesh, to_mesh;
  Layout from, to;
  std::optional<Topology> topology;
};

Mesh random_mesh(std::mt19937_64& random) {
  std::vector<int64_t> ranks(8);
  std::iota(ranks.begin(), ranks.end(), 0);
  std::shuffle(ranks.begin(), ranks.end(), random);
  std::vector<int64_t> sizes;
  int64_t product = 1;
  for (size_t axis = 0; axis < 3; ++axis) {
    sizes.push_back(1 + static_cast<int64_t>(random() % static_cast<uint64_t>(8 / product)));
    product *= sizes.back();
  }
  std::shuffle(sizes.begin(), sizes.end(), random);
  ranks.resize(static_cast<size_t>(product));
  return *Mesh::create(grid_of(sizes).axes(), ranks);
}

Case random_case(std::mt19937_64& random) {
  std::vector<int64_t> shape(random() % 4);
  for (int64_t& size : shape) size = static_cast<int64_t>(random() % 7);
  const Mesh from = random_mesh(random);
  const Mesh to = random() % 4 == 0 ? from : random_mesh(random);
  Case c{from, to, random_layout(from.grid(), shape, random), random_layout(to.grid(), shape, random), std::nullopt};
  if (random() % 2 == 0) c.topology = *Topology::uniform(1 + static_cast<int64_t>(random() % 4), 1);
  return c;
}

using Elements = std::multiset<std::vector<int64_t>>;

/// The indices of every element of a box.
Elements elements_of(const Box& box) {
  std::vector<std::vector<int64_t>> rows{{}};
  for (const Range& range : box) {
    std::vector<std::vector<int64_t>> longer;
    for (const std::vector<int64_t>& row : rows) {
      for (int64_t i = range.begin; i < range.end; ++i) {
        longer.push_back(row);
        longer.back().push_back(i);
      }
    }
    rows = std::move(longer);
  }
  return {rows.begin(), rows.end()};
}

void expect_exact(const Case& c, const Route& route) {
  const std::string what = c.from.text() + "\n  to " + c.to.text();
  std::map<int64_t, Elements> received;
  std::set<std::pair<int64_t, int64_t>> pairs;
  for (const Message& message : route.messages) {
    EXPECT_NE(message.from_rank, message.to_rank) << what;
    EXPECT_TRUE(pairs.emplace(message.from_rank, message.to_rank).second) << what;
    const Elements held = elements_of(route.source.box(c.from_mesh.position_of(message.from_rank)));
    for (const std::vector<int64_t>& element : elements_of(message.box)) {
      EXPECT_TRUE(held.contains(element)) << what;
      received[message.to_rank].insert(element);
    }
    if (!c.topology || c.topology->link_between(message.from_rank, message.to_rank) == LinkKind::kWithinNode) continue;
    for (const int64_t rank : c.from_mesh.ranks()) {
      const bool has_it = route.source.box(c.from_mesh.position_of(rank)) ==
                          route.source.box(c.from_mesh.position_of(message.from_rank));
      EXPECT_FALSE(has_it && c.topology->link_between(rank, message.to_rank) == LinkKind::kWithinNode) << what;
    }
  }
  for (const int64_t rank : c.to_mesh.ranks()) {
    // Received is exactly, and once each, what is needed and not held.
    const int64_t position = c.to_mesh.position_of(rank);
    bool needs = true;
    for (size_t axis = 0; axis < c.to.states().size(); ++axis) {
      if (c.to.state(axis).is_partial() && c.to.grid().coordinate(position, axis) != 0) needs = false;
    }
    Elements lacking = needs ? elements_of(c.to.box(position)) : Elements{};
    if (const auto own = c.from_mesh.find(rank)) {
      for (const std::vector<int64_t>& element : elements_of(route.source.box(*own))) lacking.erase(element);
    }
    EXPECT_EQ(received[rank], lacking) << what << "\n  on rank " << rank;
  }
}

TEST(Bridge, SendsExactlyWhatIsNeededAndNotHeldOnRandomMeshes) {
  std::mt19937_64 random(21);
  for (int round = 0; round < draws(1500); ++round) {
    const Case c = random_case(random);
    const Bridge bridge = plan_bridge(c.from_mesh, c.from, c.to_mesh, c.to, c.topology ? &*c.topology : nullptr);
    expect_exact(c, bridge.forward);
    expect_exact({c.to_mesh, c.from_mesh, c.to.gradient(), c.from.gradient(), c.topology}, bridge.adjoint);
    for (const AxisState& state : bridge.forward.source.states()) {
      EXPECT_TRUE(!state.is_partial() ||
                  c.from.grid().size(static_cast<size_t>(&state - bridge.forward.source.states().data())) == 1);
    }
  }
}

TEST(Bridge, KeepsTheValueAndIsAdjointOnRandomMeshes) {
  std::mt19937_64 random(22);
  const auto draw = [&] { return static_cast<double>(random() % 17) - 8; };
  for (int round = 0; round < draws(3000); ++round) {
    const Case c = random_case(random);
    const Bridge bridge = plan_bridge(c.from_mesh, c.from, c.to_mesh, c.to);
    const SimulatedTensor x = fill(c.from, draw);
    const SimulatedTensor y = fill(c.to.gradient(), draw);
    const SimulatedTensor moved = execute(bridge.forward, c.from_mesh, c.to_mesh, x);
    const SimulatedTensor returned = execute(bridge.adjoint, c.to_mesh, c.from_mesh, y);
    EXPECT_EQ(logical_value(moved), logical_value(x)) << c.from.text() << "\n  to " << c.to.text();
    EXPECT_EQ(logical_value(returned), logical_value(y)) << c.from.text() << "\n  to " << c.to.text();
    EXPECT_EQ(pairing(moved, y), pairing(x, returned)) << c.from.text() << "\n  to " << c.to.text();
  }
}

TEST(Bridge, TheSameQuestionHasTheSameAnswer) {
  std::mt19937_64 random(23);
  for (int round = 0; round < 50; ++round) {
    const Case c = random_case(random);
    const Topology topology = *Topology::uniform(2, 1);
    EXPECT_EQ(plan_route(c.from_mesh, c.from, c.to_mesh, c.to, &topology).messages,
              plan_route(c.from_mesh, c.from, c.to_mesh, c.to, &topology).messages);
  }
}

TEST(Bridge, ThousandsOfRanksExchangeRows) {
  // An encoder with dp 4096 hands ragged rows to a language model with tp 8, cp 4, dp 128 on the same ranks.
  const Mesh encoder = *Mesh::contiguous({{"dp", 4096}});
  const Mesh llm = *Mesh::contiguous({{"tp", 8}, {"cp", 4}, {"dp", 128}});
  std::mt19937_64 random(24);
  const Layout from = on(encoder, {1 << 20, 64}, {s(0)}, {{0, random_sizes(1 << 20, 4096, random)}});
  const Layout to = on(llm, {1 << 20, 64}, {kG, s(0), s(0)});
  const Topology topology = *Topology::uniform(8, 8);
  const Route route = plan_route(encoder, from, llm, to, &topology);
  int64_t moved = 0;
  for (const Message& message : route.messages) moved += num_elements(message.box);
  for (const KeptBlock& kept : route.kept) moved += num_elements(kept.box);
  EXPECT_EQ(moved, to.num_elements() * 8);
}

}  // namespace
}  // namespace weft
