// Redistribution against one rank that holds everything. all_ranks() says on which ranks.
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <torch/csrc/autograd/autograd.h>

#include "tests/support/tensor/spread_tensor.h"
#include "weft/tensor/redistribute.h"

namespace weft::redistribute_suite_test {
namespace {

class Redistribute : public OnTensorRanks {};
INSTANTIATE_TEST_SUITE_P(Tensor, Redistribute, testing::ValuesIn(suite::all_ranks()), suite::name_of_ranks);

const AxisState kP = AxisState::partial();
const AxisState kR = AxisState::replicated();
const AxisState kG = AxisState::replicated_partial_grad();

AxisState s(size_t dim) {
  return AxisState::shard(dim);
}

/// Value, gradient and bytes of one redistribution.
void expect_right(const MeshGroups& groups, const MeshGroups& checking, const Layout& from, const Layout& to,
                  uint64_t seed) {
  const std::string what = from.text() + " -> " + to.text();
  const int64_t position = groups.position();
  const at::Tensor whole = random_tensor(from.shape(), seed);
  at::Tensor x = spread(whole, from, position, seed + 1).set_requires_grad(true);
  const Redistribution way(groups, from, to);

  const auto bytes_of = [&](const std::function<void()>& work) {
    const Traffic before = groups.traffic();
    work();
    const Traffic after = groups.traffic();
    return Traffic{after.sent - before.sent, after.received - before.received};
  };
  at::Tensor y;
  EXPECT_EQ(bytes_of([&] { y = way(x); }), traffic_of(way.transition().forward, position).in_bytes(8)) << what;
  expect_spread(y, to, whole, checking, what);

  const SharedLoss loss(to, seed + 2);
  const at::Tensor share = loss.share(y, to, position);
  EXPECT_EQ(bytes_of([&] { share.backward(); }), traffic_of(way.transition().adjoint, position).in_bytes(8)) << what;
  expect_spread(x.grad(), from.gradient(), loss.gradient(whole), checking, "gradient of " + what);
}

TEST_P(Redistribute, EveryPairOfLayoutsOnOneAndTwoAxesKeepsValueAndGradient) {
  run([&](World& world) {
    std::vector<Mesh> meshes{*Mesh::contiguous({{"a", world.size()}})};
    if (world.size() % 2 == 0) meshes.push_back(*Mesh::contiguous({{"a", 2}, {"b", world.size() / 2}}));
    uint64_t seed = 0;
    for (const Mesh& mesh : meshes) {
      const MeshGroups groups = *MeshGroups::create(world, mesh), checking = *MeshGroups::create(world, mesh);
      const std::vector<Layout> layouts = all_layouts(mesh.grid(), {3, 5});
      for (const Layout& from : layouts) {
        for (const Layout& to : layouts) {
          ++seed;
          // All pairs, or some from everywhere among them.
          if ((seed * 0x9e3779b97f4a7c15u >> 32) % 5 < some_of(5)) expect_right(groups, checking, from, to, seed);
        }
      }
    }
  });
}

TEST_P(Redistribute, RandomMeshesLayoutsAndRaggedShapesKeepValueAndGradient) {
  run([&](World& world) {
    for (uint64_t seed = 1; seed <= some_of(150); ++seed) {
      std::mt19937_64 random(seed);
      const Mesh mesh = random_mesh(world.size(), random);
      std::vector<std::pair<Layout, Layout>> pairs;
      for (int i = 0; i < 4; ++i) {
        const std::vector<int64_t> shape = random_shape(random);
        const Layout from = random_layout(mesh.grid(), shape, random);
        pairs.emplace_back(from, random_layout(mesh.grid(), shape, random));
      }
      if (!mesh.contains(world.rank())) continue;
      const MeshGroups groups = *MeshGroups::create(world, mesh), checking = *MeshGroups::create(world, mesh);
      for (const auto& [from, to] : pairs) expect_right(groups, checking, from, to, seed * 100);
      groups.close();
      checking.close();
    }
  });
}

TEST_P(Redistribute, ATensorParallelBlockWithSequenceParallelismTrainsAsOnOneRank) {
  run([&](World& world) {
    const Mesh mesh = *Mesh::contiguous({{"tp", world.size()}});
    const MeshGroups groups = *MeshGroups::create(world, mesh), checking = *MeshGroups::create(world, mesh);
    constexpr int64_t kTokens = 7, kWidth = 5, kHidden = 11;
    const auto layout = [&](std::vector<int64_t> shape, AxisState state) {
      return *Layout::create(mesh.grid(), std::move(shape), {state});
    };
    const Layout rows = layout({kTokens, kWidth}, s(0));
    const Layout up_layout = layout({kWidth, kHidden}, s(1)), down_layout = layout({kHidden, kWidth}, s(0));

    at::Tensor whole_x = random_tensor({kTokens, kWidth}, 1).set_requires_grad(true);
    at::Tensor whole_up = random_tensor({kWidth, kHidden}, 2).set_requires_grad(true);
    at::Tensor whole_down = random_tensor({kHidden, kWidth}, 3).set_requires_grad(true);
    const at::Tensor target = random_tensor({kTokens, kWidth}, 4);
    const at::Tensor whole_y = whole_x.sin() + whole_x.sin().mm(whole_up).tanh().mm(whole_down);
    (whole_y - target).square().sum().backward();

    const int64_t position = groups.position();
    const auto leaf = [&](const at::Tensor& whole, const Layout& spread_as) {
      return spread(whole.detach(), spread_as, position, 0).set_requires_grad(true);
    };
    at::Tensor x = leaf(whole_x, rows), up = leaf(whole_up, up_layout), down = leaf(whole_down, down_layout);
    // Rows are shared outside the block; inside, every rank uses all rows for its own part of the hidden width.
    const at::Tensor inner = redistribute(x.sin(), rows, layout({kTokens, kWidth}, kG), groups);
    const at::Tensor summand = inner.mm(up).tanh().mm(down);
    const at::Tensor y = x.sin() + redistribute(summand, layout({kTokens, kWidth}, kP), rows, groups);
    (y - block_of(target, rows.box(position))).square().sum().backward();

    expect_spread(y, rows, whole_y.detach(), checking, "y");
    expect_spread(x.grad(), rows, whole_x.grad(), checking, "gradient of x");
    expect_spread(up.grad(), up_layout, whole_up.grad(), checking, "gradient of up");
    expect_spread(down.grad(), down_layout, whole_down.grad(), checking, "gradient of down");
  });
}

TEST_P(Redistribute, CopiesForDifferentWorkAndTheirSumsTrainAsOnOneRank) {
  // Megatron's f and g: replicated -> replicated with partial gradient, and partial -> replicated.
  run([&](World& world) {
    const Mesh mesh = *Mesh::contiguous({{"tp", world.size()}});
    const MeshGroups groups = *MeshGroups::create(world, mesh), checking = *MeshGroups::create(world, mesh);
    const auto rows = [&](AxisState state) { return *Layout::create(mesh.grid(), {4, 3}, {state}); };
    const Layout columns = *Layout::create(mesh.grid(), {3, 10}, {s(1)});
    at::Tensor whole_x = random_tensor({4, 3}, 1).set_requires_grad(true);
    at::Tensor whole_w = random_tensor({3, 10}, 2).set_requires_grad(true);
    const at::Tensor hidden = whole_x.mm(whole_w).tanh();
    hidden.mm(whole_w.t()).square().sum().backward();

    at::Tensor x = whole_x.detach().clone().set_requires_grad(true);
    at::Tensor w = spread(whole_w.detach(), columns, groups.position(), 0).set_requires_grad(true);
    const at::Tensor f = redistribute(x, rows(kR), rows(kG), groups);
    const at::Tensor y = redistribute(f.mm(w).tanh().mm(w.t()), rows(kP), rows(kR), groups);
    y.square().sum().backward();
    expect_spread(x.grad(), rows(kR), whole_x.grad(), checking, "x");
    expect_spread(w.grad(), columns, whole_w.grad(), checking, "w");
  });
}

TEST_P(Redistribute, TheGradientHasAGradient) {
  run([&](World& world) {
    const Mesh mesh = *Mesh::contiguous({{"a", world.size()}});
    const MeshGroups groups = *MeshGroups::create(world, mesh), checking = *MeshGroups::create(world, mesh);
    const Layout from = *Layout::create(mesh.grid(), {5, 2}, {s(0)}), to = *Layout::create(mesh.grid(), {5, 2}, {s(1)});
    const at::Tensor whole = random_tensor({5, 2}, 1);
    at::Tensor x = spread(whole, from, groups.position(), 0).set_requires_grad(true);
    const at::Tensor y = redistribute(x, from, to, groups);
    // Of the sum of y^4 and then of its gradient's squares: (4 y^3)^2, whose gradient is 96 y^5.
    const at::Tensor gradient = torch::autograd::grad({y.pow(4).sum()}, {x}, {}, true, true)[0];
    gradient.square().sum().backward();
    expect_spread(x.grad(), from, whole.pow(5) * 96, checking, "second gradient");
  });
}

TEST_P(Redistribute, InputsNeedNotBeContiguousAndAreNotChanged) {
  run([&](World& world) {
    const Mesh mesh = *Mesh::contiguous({{"a", world.size()}});
    const MeshGroups groups = *MeshGroups::create(world, mesh), checking = *MeshGroups::create(world, mesh);
    const std::vector<Layout> layouts = all_layouts(mesh.grid(), {9, 4});
    const at::Tensor whole = random_tensor({9, 4}, 1);
    for (const Layout& from : layouts) {
      for (const Layout& to : layouts) {
        const at::Tensor contiguous = spread(whole, from, groups.position(), 2);
        const at::Tensor x = contiguous.t().contiguous().t();
        expect_spread(redistribute(x, from, to, groups), to, whole, checking, from.text() + " -> " + to.text());
        EXPECT_TRUE(x.equal(contiguous));
      }
    }
  });
}

TEST_P(Redistribute, ElementsOfEveryTypeMove) {
  run([&](World& world) {
    const Mesh mesh = *Mesh::contiguous({{"a", world.size()}});
    const MeshGroups groups = *MeshGroups::create(world, mesh);
    const auto layout = [&](AxisState state) { return *Layout::create(mesh.grid(), {13, 3}, {state}); };
    for (const at::ScalarType type :
         {at::kDouble, at::kFloat, at::kBFloat16, at::kHalf, at::kLong, at::kInt, at::kByte, at::kBool}) {
      const at::Tensor whole = at::arange(39, at::TensorOptions().dtype(at::kLong).device(test_device()))
                                   .remainder(5)
                                   .view({13, 3})
                                   .to(type);
      const at::Tensor rows = block_of(whole, layout(s(0)).box(groups.position()));
      EXPECT_TRUE(redistribute(rows, layout(s(0)), layout(kR), groups).equal(whole)) << c10::toString(type);
      EXPECT_TRUE(redistribute(rows, layout(s(0)), layout(s(1)), groups)
                      .equal(block_of(whole, layout(s(1)).box(groups.position()))));
      if (type == at::kBool) continue;
      EXPECT_TRUE(redistribute(whole, layout(kP), layout(kR), groups).equal(whole * world.size()));
    }
  });
}

TEST_P(Redistribute, WhatChangesOnlyTheGradientMovesAndCopiesNothing) {
  run([&](World& world) {
    const Mesh mesh = *Mesh::contiguous({{"a", world.size()}});
    const MeshGroups groups = *MeshGroups::create(world, mesh);
    const auto layout = [&](AxisState state) { return *Layout::create(mesh.grid(), {4}, {state}); };
    const at::Tensor x = random_tensor({4}, 1).set_requires_grad(true);
    EXPECT_TRUE(redistribute(x, layout(kR), layout(kR), groups).is_same(x));
    EXPECT_EQ(redistribute(x, layout(kR), layout(kG), groups).data_ptr(), x.data_ptr());
    EXPECT_EQ(groups.traffic(), Traffic{});
    // A slice has memory of its own: writing to it does not reach the input.
    const at::Tensor rows = redistribute(x.detach(), layout(kR), layout(s(0)), groups);
    if (world.size() > 1 && rows.numel() > 0) {
      rows.fill_(100);
      EXPECT_LT(x.max().item<double>(), 50);
    }
  });
}

/// The message of the InternalError that it throws.
std::string refusal(const std::function<void()>& work) {
  try {
    work();
  } catch (const InternalError& error) {
    return error.what();
  }
  return "nothing was thrown";
}

TEST_P(Redistribute, WrongTensorsAreToldWithRankWhatItHasAndWhatWasExpected) {
  run([&](World& world) {
    const Mesh mesh = *Mesh::contiguous({{"a", world.size()}});
    const MeshGroups groups = *MeshGroups::create(world, mesh);
    const auto layout = [&](AxisState state) { return *Layout::create(mesh.grid(), {4, 3}, {state}); };
    const Redistribution way(groups, layout(kP), layout(kR));
    const std::string start = "rank " + std::to_string(world.rank()) + ", redistribute of [4, 3] on a " +
                              std::to_string(world.size()) + ": a partial: ";
    EXPECT_EQ(refusal([&] { (void)way(random_tensor({3, 4}, 1)); }), start + "the tensor is [3, 4], expected [4, 3]");
    EXPECT_EQ(refusal([&] { (void)way(at::Tensor()); }), start + "there is no tensor, expected [4, 3]");
    EXPECT_EQ(refusal([&] {
                (void)way(random_tensor({4, 3}, 1).to(at::kComplexDouble));
              }),
              start + "the tensor is ComplexDouble, expected Double, Float, BFloat16, Half, Long, Int, Byte or Bool");
    EXPECT_EQ(refusal([&] {
                (void)way(at::empty({4, 3}, at::TensorOptions().device(at::kMeta)));
              }),
              start + "the tensor is on meta, expected cpu or cuda");
    EXPECT_EQ(refusal([&] {
                (void)way(random_tensor({4, 3}, 1).to_sparse());
              }),
              start + "the tensor is sparse, expected a dense one");

    // A group of one moves nothing, and so is not asked.
    if (world.size() > 1) {
      const MeshGroups closed = *MeshGroups::create(world, mesh);
      const Redistribution late(closed, layout(kP), layout(kR));
      closed.close();
      EXPECT_NE(refusal([&] { (void)late(random_tensor({4, 3}, 1)); }).find("the group was closed"), std::string::npos);
    }
    const Layout elsewhere = *Layout::create(grid_of({world.size() + 1}), {4, 3}, {kR});
    EXPECT_NE(
        refusal([&] { Redistribution(groups, layout(kP), elsewhere); }).find("expected layouts on that mesh's axes"),
        std::string::npos);
    const Layout other_shape = *Layout::create(mesh.grid(), {4, 4}, {kR});
    EXPECT_NE(refusal([&] { Redistribution(groups, layout(kP), other_shape); }).find("expected one shape"),
              std::string::npos);
  });
}

TEST_P(Redistribute, AWorldWithoutTheMeshsRanksIsRefused) {
  run([&](World& world) {
    const auto larger = MeshGroups::create(world, *Mesh::contiguous({{"a", world.size() + 2}}));
    ASSERT_FALSE(larger.ok());
    EXPECT_NE(larger.error().message().find("Start " + std::to_string(world.size() + 2) + " ranks."), std::string::npos)
        << larger.error().message();
    if (world.rank() == 0) return;
    const auto without_me = MeshGroups::create(world, *Mesh::contiguous({{"a", world.rank()}}));
    ASSERT_FALSE(without_me.ok());
    EXPECT_NE(without_me.error().message().find("rank " + std::to_string(world.rank())), std::string::npos);
  });
}

}  // namespace
}  // namespace weft::redistribute_suite_test
