// Bridges against one rank that holds everything. all_ranks() says on which ranks.
#include <ATen/ops/zeros.h>

#include "weft/tensor/redistribute.h"
#include "weft/tensor/row_gradients.h"
#include "weft/tensor/rows.h"
#include "weft/tensor/spread_tensor.h"
#include "weft/tensor/tensor_bridge.h"

namespace weft {
namespace {

class Bridges : public OnTensorRanks {};
INSTANTIATE_TEST_SUITE_P(Tensor, Bridges, testing::ValuesIn(suite::all_ranks()), suite::name_of_ranks);

const AxisState kP = AxisState::partial();
const AxisState kR = AxisState::replicated();
const AxisState kG = AxisState::replicated_partial_grad();

TensorBridge::Options doubles() {
  return {.type = at::kDouble, .device = test_device()};
}

AxisState s(size_t dim) {
  return AxisState::shard(dim);
}

Traffic operator-(const Traffic& a, const Traffic& b) {
  return {a.sent - b.sent, a.received - b.received};
}

/// What a rank sends and receives on a route, in bytes of doubles.
Traffic bytes_of(const Route& route, const std::optional<MeshGroups>& from, int64_t rank) {
  const auto messages = message_traffic(route);
  Traffic traffic = messages.contains(rank) ? messages.at(rank) : Traffic{};
  if (from) traffic += traffic_of(route.reduce, from->position());
  return traffic.in_bytes(8);
}

/// Value, gradient and bytes of one bridge.
void expect_right(World& world, const Mesh& from_mesh, const Layout& from, const Mesh& to_mesh, const Layout& to,
                  uint64_t seed) {
  if (!from_mesh.contains(world.rank()) && !to_mesh.contains(world.rank())) return;
  const std::string what = from.text() + " -> " + to.text();
  const BridgeGroups groups = *BridgeGroups::create(world, from_mesh, to_mesh);
  const BridgeGroups checking = *BridgeGroups::create(world, from_mesh, to_mesh);
  const TensorBridge bridge(groups, from, to, doubles());
  const at::Tensor whole = random_tensor(from.shape(), seed);
  const SharedLoss loss(to, seed + 2);

  at::Tensor x, gradient;
  if (groups.from()) x = spread(whole, from, groups.from()->position(), seed + 1).set_requires_grad(true);
  Traffic before = groups.traffic();
  at::Tensor y = bridge.forward(x);
  EXPECT_EQ(groups.traffic() - before, bytes_of(bridge.plan().forward, groups.from(), world.rank())) << what;
  EXPECT_EQ(y.defined(), groups.to().has_value());
  if (y.defined()) {
    EXPECT_FALSE(y.requires_grad());
    expect_spread(y, to, whole, *checking.to(), what);
    y.set_requires_grad(true);
    loss.share(y, to, groups.to()->position()).backward();
    gradient = y.grad();
  }
  before = groups.traffic();
  const at::Tensor back = bridge.backward(gradient);
  EXPECT_EQ(groups.traffic() - before, bytes_of(bridge.plan().adjoint, groups.to(), world.rank())) << what;
  EXPECT_EQ(back.defined(), groups.from().has_value());
  if (back.defined())
    expect_spread(back, from.gradient(), loss.gradient(whole), *checking.from(), "gradient of " + what);
  groups.close();
  checking.close();
}

TEST_P(Bridges, RandomMeshesLayoutsAndRaggedShapesKeepValueAndGradient) {
  run([&](World& world) {
    for (uint64_t seed = 1; seed <= some_of(400); ++seed) {
      std::mt19937_64 random(seed);
      const Mesh from_mesh = random_mesh(world.size(), random);
      // Now and then the same mesh, else any: disjoint ones and such that share ranks.
      const Mesh to_mesh = random() % 4 == 0 ? from_mesh : random_mesh(world.size(), random);
      const std::vector<int64_t> shape = random_shape(random);
      const Layout from = random_layout(from_mesh.grid(), shape, random);
      const Layout to = random_layout(to_mesh.grid(), shape, random);
      expect_right(world, from_mesh, from, to_mesh, to, seed * 10);
    }
  });
}

TEST_P(Bridges, RowsGoBetweenTheSameDisjointAndOverlappingRanks) {
  run([&](World& world) {
    const int64_t size = world.size(), half = (size + 1) / 2;
    const auto line = [](int64_t num_ranks, int64_t first) { return *Mesh::contiguous({{"dp", num_ranks}}, first); };
    const std::vector<std::pair<Mesh, Mesh>> pairs{{line(size, 0), line(size, 0)},
                                                   {line(half, 0), line(size / 2 + 1, half - 1)},
                                                   {line(size, 0), line(1, size / 2)}};
    uint64_t seed = 0;
    for (const auto& [from_mesh, to_mesh] : pairs) {
      for (const AxisState to_state : {s(0), kR, kG, kP}) {
        expect_right(world, from_mesh, *Layout::create(from_mesh.grid(), {13, 2}, {s(0)}), to_mesh,
                     *Layout::create(to_mesh.grid(), {13, 2}, {to_state}), ++seed);
      }
    }
    if (size < 2) return;
    const Mesh left = line(half, 0), right = line(size - half, half);
    expect_right(world, left, *Layout::create(left.grid(), {13, 2}, {s(0)}), right,
                 *Layout::create(right.grid(), {13, 2}, {s(0)}), 77);
  });
}

/// An encoder on some ranks hands rows over to a language model on others, a macro batch to several microbatches.
struct EncoderAndLlm {
  static constexpr int64_t kWidth = 3, kVocabulary = 8;
  Mesh encoder, llm;
  std::vector<int64_t> rows_of_samples;
  std::vector<Range> samples_of_microbatches;

  explicit EncoderAndLlm(int64_t world_size, uint64_t seed)
      : encoder(*Mesh::contiguous({{"dp", (world_size * 3 + 3) / 4}})),
        llm(*Mesh::contiguous(
            {{"tp", world_size % 2 == 0 ? 2 : 1}, {"dp", world_size % 2 == 0 ? world_size / 2 : 1}})) {
    std::mt19937_64 random(seed);
    // Samples without an image, and so many rows in others that some ranks have none.
    for (int i = 0; i < 11; ++i) rows_of_samples.push_back(random() % 3 == 0 ? 0 : static_cast<int64_t>(random() % 6));
    samples_of_microbatches = {{0, 4}, {4, 4}, {4, 9}, {9, 11}};
  }

  Range rows_of(Range samples) const {
    const auto sum = [&](int64_t end) {
      return std::accumulate(rows_of_samples.begin(), rows_of_samples.begin() + end, int64_t{0});
    };
    return {sum(samples.begin), sum(samples.end)};
  }
  Layout macro_batch() const {
    std::vector<int64_t> samples;
    for (const Range& part : Split(std::ssize(rows_of_samples), {encoder.num_ranks()}).parts())
      samples.push_back(part.size());
    return *Layout::create(encoder.grid(), {rows_of({0, std::ssize(rows_of_samples)}).end, kWidth}, {s(0)},
                           {{0, rows_of_parts(rows_of_samples, samples)}});
  }
  Layout microbatch(size_t index) const {
    const Range samples = samples_of_microbatches[index];
    std::vector<int64_t> counts;
    for (const Range& part : Split(samples.size(), {llm.grid().size(1)}).parts()) counts.push_back(part.size());
    const std::vector<int64_t> rows(rows_of_samples.begin() + samples.begin, rows_of_samples.begin() + samples.end);
    return *Layout::create(llm.grid(), {rows_of(samples).size(), kWidth}, {kG, s(0)},
                           {{0, rows_of_parts(rows, counts)}});
  }
};

TEST_P(Bridges, AnEncoderTrainsThroughMicrobatchesOfRaggedRowsAsOnOneRank) {
  run([&](World& world) {
    for (uint64_t seed = 1; seed <= 4; ++seed) {
      const EncoderAndLlm setting(world.size(), seed);
      const Layout macro_batch = setting.macro_batch();
      const auto weights_layout = [&](AxisState state) {
        return *Layout::create(setting.encoder.grid(), {EncoderAndLlm::kWidth, EncoderAndLlm::kWidth}, {state});
      };
      // Everything on one rank.
      const at::Tensor inputs = random_tensor(macro_batch.shape(), 1);
      const at::Tensor head = random_tensor({EncoderAndLlm::kWidth, EncoderAndLlm::kVocabulary}, 2);
      at::Tensor whole_weights = random_tensor({EncoderAndLlm::kWidth, EncoderAndLlm::kWidth}, 3);
      whole_weights.set_requires_grad(true);
      inputs.mm(whole_weights).tanh().mm(head).sin().sum().backward();

      const BridgeGroups groups = *BridgeGroups::create(world, setting.encoder, setting.llm);
      at::Tensor weights = whole_weights.detach().clone().set_requires_grad(true);
      at::Tensor encoded;
      std::optional<RowGradients> gradients;
      std::vector<Range> parts;
      for (const Range& samples : setting.samples_of_microbatches) parts.push_back(setting.rows_of(samples));
      if (groups.from()) {
        const int64_t position = groups.from()->position();
        const at::Tensor used = redistribute(weights, weights_layout(kR), weights_layout(kG), *groups.from());
        encoded = block_of(inputs, macro_batch.box(position)).mm(used).tanh();
        gradients.emplace(RowGradients::Description{.layout = macro_batch,
                                                    .rank = world.rank(),
                                                    .position = position,
                                                    .dim = 0,
                                                    .parts = parts,
                                                    .options = encoded.options()});
        EXPECT_EQ(gradients->num_missing(), 4);
      }
      std::vector<TensorBridge> bridges;
      std::vector<at::Tensor> rows;
      for (size_t i = 0; i < parts.size(); ++i) {
        bridges.emplace_back(groups, rows_layout(macro_batch, 0, parts[i]), setting.microbatch(i), doubles());
        at::Tensor own;
        if (groups.from()) {
          const Range local = local_rows(macro_batch, 0, parts[i], groups.from()->position());
          if (local.size() > 0) own = encoded.narrow(0, local.begin, local.size());
        }
        rows.push_back(bridges.back().forward(own));
      }
      for (size_t i = parts.size(); i-- > 0;) {
        at::Tensor gradient;
        if (groups.to()) {
          const int64_t tp = setting.llm.grid().size(0), column = groups.to()->position() % tp;
          rows[i].set_requires_grad(true);
          rows[i].mm(head.chunk(tp, 1)[static_cast<size_t>(column)]).sin().sum().backward();
          gradient = rows[i].grad();
        }
        const at::Tensor back = bridges[i].backward(gradient);
        if (!groups.from()) continue;
        gradients->add(i, back);
        EXPECT_EQ(gradients->num_missing(), static_cast<int64_t>(i));
      }
      if (!groups.from()) continue;
      ASSERT_TRUE(gradients->is_complete());
      encoded.backward(gradients->take());
      EXPECT_LE(largest_difference(weights.grad(), whole_weights.grad()), kTolerance * 10) << "seed " << seed;
    }
  });
}

TEST_P(Bridges, TransfersMayBeUnderWayTogetherAndEachRankMayWaitInItsOwnOrder) {
  run([&](World& world) {
    const Mesh mesh = *Mesh::contiguous({{"a", world.size()}});
    const BridgeGroups groups = *BridgeGroups::create(world, mesh, mesh);
    const Layout rows = *Layout::create(mesh.grid(), {40, 3}, {s(0)}),
                 columns = *Layout::create(mesh.grid(), {40, 3}, {s(1)});
    const TensorBridge bridge(groups, rows, columns, doubles());
    const int64_t position = groups.from()->position();
    std::vector<at::Tensor> wholes;
    std::vector<BridgeTransfer> there, back;
    for (uint64_t i = 0; i < 4; ++i) wholes.push_back(random_tensor({40, 3}, i));
    const auto start = [&](bool is_forward) {
      for (const at::Tensor& whole : wholes) {
        if (is_forward) {
          there.push_back(bridge.start_forward(block_of(whole, rows.box(position))));
        } else {
          back.push_back(bridge.start_backward(block_of(whole, columns.box(position))));
        }
      }
    };
    // Rows first on some ranks, gradients first on others.
    start(world.rank() % 2 == 0);
    start(world.rank() % 2 != 0);
    for (size_t i = 0; i < wholes.size(); ++i) {
      const size_t k = world.rank() % 3 == 0 ? i : wholes.size() - 1 - i;
      EXPECT_TRUE(back[k].wait().equal(block_of(wholes[k], rows.box(position))));
      EXPECT_TRUE(there[k].wait().equal(block_of(wholes[k], columns.box(position))));
    }
  });
}

TEST_P(Bridges, RowsThatStayWhereTheyAreAreNotCopied) {
  run([&](World& world) {
    const Mesh mesh = *Mesh::contiguous({{"a", world.size()}});
    const BridgeGroups groups = *BridgeGroups::create(world, mesh, mesh);
    const Layout rows = *Layout::create(mesh.grid(), {16, 3}, {s(0)});
    const at::Tensor x = spread(random_tensor({16, 3}, 1), rows, groups.from()->position(), 0).set_requires_grad(true);
    const at::Tensor y = TensorBridge(groups, rows, rows, doubles()).forward(x);
    EXPECT_EQ(y.data_ptr(), x.data_ptr());
    EXPECT_FALSE(y.requires_grad());
    EXPECT_EQ(groups.traffic(), Traffic{});
  });
}

TEST_P(Bridges, NonContiguousRowsTravel) {
  run([&](World& world) {
    const Mesh mesh = *Mesh::contiguous({{"a", world.size()}}), last = *Mesh::contiguous({{"a", 1}}, world.size() - 1);
    const BridgeGroups groups = *BridgeGroups::create(world, mesh, last);
    const at::Tensor whole = random_tensor({9, 4}, 1);
    for (const AxisState state : {s(0), s(1)}) {
      const Layout from = *Layout::create(mesh.grid(), {9, 4}, {state}),
                   to = *Layout::create(last.grid(), {9, 4}, {kR});
      const at::Tensor x = block_of(whole, from.box(groups.from()->position())).t().contiguous().t();
      const at::Tensor y = TensorBridge(groups, from, to, doubles()).forward(x);
      EXPECT_EQ(y.defined(), world.rank() == world.size() - 1);
      if (!y.defined()) continue;
      EXPECT_TRUE(y.equal(whole));
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

TEST_P(Bridges, WrongTensorsAreToldWithRankWhatItHasAndWhatWasExpected) {
  run([&](World& world) {
    const Mesh all = *Mesh::contiguous({{"a", world.size()}}), first = *Mesh::contiguous({{"a", 1}});
    const BridgeGroups groups = *BridgeGroups::create(world, all, first);
    const Layout from = *Layout::create(all.grid(), {4, 2}, {kR}), to = *Layout::create(first.grid(), {4, 2}, {kR});
    const TensorBridge bridge(groups, from, to, {.type = at::kFloat, .device = test_device()});
    const std::string start = "rank " + std::to_string(world.rank()) + ", bridge of " + from.text() + ": ";
    const at::Tensor good = random_tensor({4, 2}, 1).to(at::kFloat);
    EXPECT_EQ(refusal([&] { (void)bridge.forward(good.to(at::kDouble)); }),
              start + "the tensor is Double, expected Float");
    EXPECT_EQ(refusal([&] { (void)bridge.forward(good.t()); }), start + "the tensor is [2, 4], expected [4, 2]");
    EXPECT_EQ(refusal([&] { (void)bridge.forward(good.to(at::kMeta)); }),
              start + "the tensor is on meta, expected cpu or cuda");
    if (good.is_cuda()) {
      EXPECT_EQ(refusal([&] { (void)bridge.forward(good.cpu()); }),
                start + "the tensor is on cpu, expected " + test_device().str());
    }
    EXPECT_EQ(refusal([&] { (void)bridge.forward(at::Tensor()); }), start + "there is no tensor, expected [4, 2]");
    if (world.rank() > 0) {
      EXPECT_EQ(refusal([&] { (void)bridge.backward(good); }),
                "rank " + std::to_string(world.rank()) + ", bridge back of " + to.gradient().text() +
                    ": there is a tensor [4, 2], expected none: the rank is not in the mesh");
    }
    EXPECT_NE(refusal([&] { TensorBridge(groups, from, to, {.type = at::kComplexFloat}); }).find("ComplexFloat"),
              std::string::npos);
    EXPECT_NE(refusal([&] {
                TensorBridge(groups, from, *Layout::create(first.grid(), {2, 4}, {kR}),
                             {.type = at::kFloat, .device = test_device()});
              }).find("expected one shape"),
              std::string::npos);
    EXPECT_NE(refusal([&] {
                TensorBridge(groups, *Layout::create(grid_of({9}), {4, 2}, {kR}), to,
                             {.type = at::kFloat, .device = test_device()});
              }).find("expected layouts on those meshes' axes"),
              std::string::npos);
    const auto too_large = BridgeGroups::create(world, all, *Mesh::contiguous({{"a", 1}}, world.size()));
    ASSERT_FALSE(too_large.ok());
    EXPECT_NE(too_large.error().message().find("needs rank " + std::to_string(world.size())), std::string::npos);
  });
}

}  // namespace
}  // namespace weft
