#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/ones_like.h>
#include <gtest/gtest.h>

#include "tests/support/runner/program_runs.h"
#include "weft/program/program_text.h"

// Runs below fp32.

namespace weft {
namespace {

/// A product whose summed dim is cut, and a sum that the strategy has read its summands.
const char* const kThrough =
    "weft_program 1 p\ndim b 1\ndim h 2\ndim f 1\ninput x [b h]\ninput r [b f]\nweight w [f h]\n"
    "y = einsum(x, w) : b h, f h -> b f\nz = add(y, r) : b f, b f -> b f\n";

TEST(LowPrecision, SummandsAreReducedBeforeAnythingReadsThem) {
  const Program program = *parse_program(kThrough, "test");
  RunStrategy strategy{.operators = {{Choice::cut(*program.operators[0].rule.find("h"))}, {Choice::through()}},
                       .sources = {{AxisState::shard(1)}, {AxisState::replicated()}, {AxisState::shard(1)}, {}, {}}};
  for (const at::ScalarType type : {at::kBFloat16, at::kHalf}) {
    // One rank has 2^n and the other −2^n; beside it a 1 is lost.
    const double large = type == at::kHalf ? 4096 : 512;
    on_thread_ranks(2, [&](World& world) {
      const MeshGroups groups = *MeshGroups::create(world, *Mesh::contiguous({{"tp", 2}}));
      const auto run = [&](bool reduces_first) {
        ProgramRunner runner =
            *ProgramRunner::create(program, strategy, groups, {.wants_gradient = {}, .reduces_first = reduces_first});
        const auto number = [&](double value) { return at::full({1, 1}, value, at::TensorOptions(type)); };
        const std::vector<at::Tensor> given = {
            number(groups.position() == 0 ? large : -large), number(1), number(1), {}, {}};
        const Traffic before = groups.traffic(), planned = runner.planned_bytes(given);
        RunnerTape tape;
        at::Tensor sum = runner.forward(given, {}, tape)[0];
        const auto gradients = runner.backward({at::ones_like(sum)}, tape);
        EXPECT_EQ(gradients[2].scalar_type(), at::kFloat);  // of the weight
        const Traffic after = groups.traffic();
        EXPECT_EQ((Traffic{after.sent - before.sent, after.received - before.received}), planned);
        if (!runner.layout(4).partial_axes().empty())
          groups.along({0}).all_reduce(buffer_of(sum), Reduction::kSum).wait();
        return sum.item<double>();
      };
      EXPECT_EQ(run(false), 0);  // what would be lost
      EXPECT_EQ(run(true), 1);
    });
  }
}

TEST(LowPrecision, RandomStrategiesMoveWhatWasPlannedAndStayNear) {
  const Program program = *parse_program(
      "weft_program 1 p\ndim b 3\ndim s 5\ndim h 8\ndim f 6\ndim v 7\ndim k 24 unit 12\ndim o 8 unit 4\ndata ids [b "
      "s]\n"
      "weight t [v h]\nx = lookup(ids, t) : b s, v h -> b s h\nweight g [h]\nn = norm(x, g) : b s h, h -> b s h\n"
      "weight wq [k h]\nq = einsum(n, wq) : b s h, k h -> b s k\n"
      "m = attention(q) : b s k -> b s k ; as b s o ; heads 2 2 4 ; mask causal\n"
      "weight wo [h o]\na = einsum(m, wo) : b s o, h o -> b s h\nr = add(x, a) : b s h, b s h -> b s h\n"
      "weight wu [f h]\nu = einsum(r, wu) : b s h, f h -> b s f\nc = elementwise(u) : b s f -> b s f ; does silu\n"
      "weight wd [h f]\nd = einsum(c, wd) : b s f, h f -> b s h\ny = add(r, d) : b s h, b s h -> b s h\n"
      "z = einsum(y, t) : b s h, v h -> b s v\ndata targets [b s]\nl = cross_entropy(z, targets) : b s v, b s -> b s\n"
      "loss = sum(l) : b s ->\n",
      "test");
  const std::vector<at::Tensor> given = random_given(program, 3);
  std::vector<at::Tensor> rounded = given;
  for (at::Tensor& one : rounded) {
    if (one.defined() && one.is_floating_point()) one = one.mul(0.3).to(at::kBFloat16).to(at::kDouble);
  }
  for (uint64_t seed = 1; seed <= draws(uint64_t{12}); ++seed) {
    const Mesh mesh =
        *Mesh::contiguous(seed % 2 == 0 ? std::vector<Axis>{{"tp", 3}} : std::vector<Axis>{{"tp", 2}, {"dp", 2}});
    Random random(seed);
    RunStrategy strategy = random_strategy(program, mesh.grid(), random);
    // What is given as summands would be rounded before.
    for (std::vector<AxisState>& states : strategy.sources) {
      for (AxisState& state : states) state = state.is_partial() ? AxisState::replicated() : state;
    }
    on_thread_ranks(mesh.grid().num_positions(), [&](World& world) {
      const WholeRun whole = run_whole(world, program, rounded, 0);
      const MeshGroups groups = *MeshGroups::create(world, mesh), checking = *MeshGroups::create(world, mesh);
      ProgramRunner runner =
          *ProgramRunner::create(program, strategy, groups, {.wants_gradient = {}, .reduces_first = true});
      std::vector<at::Tensor> parts(given.size());
      for (size_t value = 0; value < parts.size(); ++value) {
        if (!rounded[value].defined()) continue;
        parts[value] = block_of(rounded[value], runner.layout(value).box(groups.position())).contiguous();
        if (parts[value].is_floating_point()) parts[value] = parts[value].to(at::kBFloat16);
      }
      const Traffic before = groups.traffic(), planned = runner.planned_bytes(parts);
      RunnerTape tape;
      const at::Tensor loss = runner.forward(parts, {}, tape)[0];
      const Layout layout = runner.layout(runner.outputs()[0]);
      EXPECT_EQ(loss.scalar_type(), at::kFloat);
      const at::Tensor slope =
          at::full({}, layout.grid().group_index(groups.position(), layout.gradient().partial_axes()) == 0 ? 1.0 : 0.0,
                   at::kFloat);
      const auto gradients = runner.backward({slope}, tape);
      const Traffic after = groups.traffic();
      EXPECT_EQ((Traffic{after.sent - before.sent, after.received - before.received}), planned) << "seed " << seed;
      at::Tensor sum = loss.clone();
      if (const AxisList partial = layout.partial_axes(); !partial.empty())
        checking.along(partial).all_reduce(buffer_of(sum), Reduction::kSum).wait();
      const double exact = whole.outputs[0].item<double>();
      EXPECT_NEAR(sum.item<double>(), exact, 0.03 * std::abs(exact)) << "seed " << seed;
      for (size_t value = 0; value < parts.size(); ++value) {
        if (program.values[value].role != ProgramValue::Role::kWeight) continue;
        EXPECT_EQ(gradients[value].scalar_type(), at::kFloat);
        EXPECT_TRUE(gradients[value].isfinite().all().item<bool>());
      }
    });
  }
}

}  // namespace
}  // namespace weft
