// What the runner of programs costs beside what it runs, in one thread: a chain of operators between each two of which
// the layout changes against the same functions and the same steps called by hand; a layer whose operators are lowered
// into one graph against LibTorch's own functions in one graph; and the set-up of a redistribution with lengths that
// were not seen before. The other ranks are not there: they send zeros at once.
#include "weft/runner/program_runner.h"

#include <algorithm>
#include <chrono>

#include <ATen/Parallel.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/scaled_dot_product_attention.h>
#include <ATen/ops/silu.h>
#include <fmt/format.h>
#include <torch/csrc/autograd/autograd.h>

#include "bench/must.h"
#include "tests/support/comm/fake_world.h"
#include "weft/program/program_builder.h"
#include "weft/program/value_layout.h"

namespace {

using namespace weft;
using Clock = std::chrono::steady_clock;

/// The median of some calls, in µs.
template <typename Call>
double median_us(int calls, Call call) {
  std::vector<double> times;
  for (int i = 0; i < calls; ++i) {
    const auto begin = Clock::now();
    call(i);
    times.push_back(std::chrono::duration<double, std::micro>(Clock::now() - begin).count());
  }
  std::nth_element(times.begin(), times.begin() + calls / 2, times.end());
  return times[static_cast<size_t>(calls / 2)];
}

std::vector<std::vector<AxisState>> sources_of(const Program& program, size_t num_axes) {
  std::vector<std::vector<AxisState>> sources;
  for (const ProgramValue& value : program.values)
    sources.emplace_back(value.role == ProgramValue::Role::kResult ? 0 : num_axes, AxisState::replicated());
  return sources;
}

std::vector<at::Tensor> parts_of(const Program& program, const ProgramRunner& runner, int64_t position) {
  std::vector<at::Tensor> given(program.values.size());
  for (size_t value = 0; value < given.size(); ++value) {
    if (program.values[value].role != ProgramValue::Role::kResult)
      given[value] = at::randn(runner.layout(value).local_shape(position)) * 0.1;
  }
  return given;
}

double run_us(ProgramRunner& runner, const std::vector<at::Tensor>& given) {
  return median_us(301, [&](int) {
    RunnerTape tape;
    const std::vector<at::Tensor> outputs = runner.forward(given, {}, tape);
    runner.backward({at::ones_like(outputs[0])}, tape);
  });
}

/// Functions of rows that are whole, cut, whole, ...: each by itself.
void chain() {
  constexpr int kOperators = 32;
  constexpr int64_t kRows = 8, kWidth = 16;
  ProgramBuilder code("chain");
  code.dim("b", kRows), code.dim("h", kWidth);
  size_t x = code.input("x", "b h");
  for (int i = 0; i < kOperators; ++i)
    x = code.elementwise(fmt::format("f{}", i), "b h -> b h", {x}, {.calculation = {.function = Activation::kSilu}});
  const Program program = must(code.finish());
  FakeWorld fake({.rank = 0, .size = 2});
  const MeshGroups groups = must(MeshGroups::create(fake.world(), *Mesh::contiguous({{"tp", 2}})));
  RunStrategy strategy{.operators = {}, .sources = sources_of(program, 1)};
  for (int i = 0; i < kOperators; ++i) strategy.operators.push_back({i % 2 == 0 ? Choice::cut(0) : Choice::same()});
  ProgramRunner runner = must(ProgramRunner::create(program, strategy, groups));
  const double with_runner = run_us(runner, parts_of(program, runner, groups.position()));

  const Layout whole = *Layout::create(groups.mesh().grid(), {kRows, kWidth}, {AxisState::replicated()});
  const Layout cut = *Layout::create(groups.mesh().grid(), {kRows, kWidth}, {AxisState::shard(0)});
  const Transition there = plan_transition(whole, cut), back = plan_transition(cut, whole);
  const RankSteps slice(there.forward, groups), slice_back(there.adjoint, groups);
  const RankSteps gather(back.forward, groups), gather_back(back.adjoint, groups);
  const at::Tensor rows = at::randn({kRows, kWidth}), part = at::randn(cut.local_shape(0));
  const double steps = median_us(301, [&](int) {
    for (int i = 0; i < kOperators / 2; ++i) {
      slice.run(rows), slice_back.run(part);
      gather.run(part), gather_back.run(rows);
    }
  });
  const at::Tensor leaf = rows.detach().set_requires_grad(true);
  const double functions = median_us(301, [&](int) {
    at::Tensor y = leaf;
    for (int i = 0; i < kOperators; ++i) y = at::silu(y);
    torch::autograd::grad({y}, {leaf}, {at::ones_like(y)});
  });
  fmt::print("{} operators, each by itself: {:.0f} us, of which steps {:.0f}, functions in one graph {:.0f}\n",
             kOperators, with_runner, steps, functions);
  fmt::print("  the runner over LibTorch: {:.1f} us an operator (goal 10)\n",
             (with_runner - steps - functions) / kOperators);
}

constexpr int64_t kSamples = 2, kRows = 64, kWidth = 64, kHeads = 4, kHeadDim = 16, kInner = 128;

Program layer_program() {
  ProgramBuilder code("layer");
  code.dim("b", kSamples), code.dim("s", kRows), code.dim("h", kWidth), code.dim("f", kInner);
  code.dim("k", 3 * kHeads * kHeadDim, 3 * kHeadDim), code.dim("o", kHeads * kHeadDim, kHeadDim);
  const size_t x = code.input("x", "b s h");
  const size_t n = code.norm("n", "b s h, h -> b s h", {x, code.weight("g", "h")});
  const size_t qkv = code.einsum("qkv", "b s h, k h -> b s k", {n, code.weight("wq", "k h")});
  const size_t mix = code.attention(
      "mix", "b s k -> b s k", qkv,
      {.as = "b s o", .attention = {.heads = kHeads, .kv_heads = kHeads, .head_dim = kHeadDim, .mask = Mask::kCausal}});
  const size_t out = code.einsum("out", "b s o, h o -> b s h", {mix, code.weight("wo", "h o")});
  const size_t r = code.sum_of("r", "b s h, b s h -> b s h", {x, out});
  const size_t m = code.norm("m", "b s h, h -> b s h", {r, code.weight("g2", "h")});
  const size_t up = code.einsum("up", "b s h, f h -> b s f", {m, code.weight("wu", "f h")});
  const size_t act = code.elementwise("act", "b s f -> b s f", {up}, {.calculation = {.function = Activation::kSilu}});
  const size_t down = code.einsum("down", "b s f, h f -> b s h", {act, code.weight("wd", "h f")});
  code.sum_of("y", "b s h, b s h -> b s h", {r, down});
  return must(code.finish());
}

/// All operators of a layer in one graph, against the same written with LibTorch.
void layer() {
  const Program program = layer_program();
  FakeWorld fake({.rank = 0, .size = 1});
  const MeshGroups groups = must(MeshGroups::create(fake.world(), *Mesh::contiguous({{"tp", 1}})));
  RunStrategy strategy{.operators = {}, .sources = sources_of(program, 1)};
  strategy.operators.assign(program.operators.size(), {Choice::same()});
  ProgramRunner runner = must(ProgramRunner::create(program, strategy, groups));
  const std::vector<at::Tensor> given = parts_of(program, runner, 0);
  const double with_runner = run_us(runner, given);

  std::vector<at::Tensor> leaves;
  for (const at::Tensor& one : given) {
    if (one.defined()) leaves.push_back(one.detach().set_requires_grad(true));
  }
  const auto rms = [](const at::Tensor& x, const at::Tensor& weight) {
    return x * (x.square().mean(-1, true) + 1e-6).rsqrt() * weight;
  };
  const double plain = median_us(301, [&](int) {
    const at::Tensor& x = leaves[0];
    const at::Tensor qkv =
        at::linear(rms(x, leaves[1]), leaves[2]).view({kSamples, kRows, kHeads, 3, kHeadDim}).permute({3, 0, 2, 1, 4});
    const at::Tensor mix = at::scaled_dot_product_attention(qkv[0], qkv[1], qkv[2], {}, 0, true);
    const at::Tensor r = x + at::linear(mix.transpose(1, 2).flatten(2), leaves[3]);
    const at::Tensor y = r + at::linear(at::silu(at::linear(rms(r, leaves[4]), leaves[5])), leaves[6]);
    torch::autograd::grad({y}, leaves, {at::ones_like(y)});
  });
  const auto count = static_cast<double>(program.operators.size());
  fmt::print("a layer of {} operators in one graph: {:.0f} us, LibTorch {:.0f}: {:.2f} times, {:+.1f} us an operator\n",
             program.operators.size(), with_runner, plain, with_runner / plain, (with_runner - plain) / count);
}

void setup(const std::vector<Axis>& axes) {
  const Mesh mesh = *Mesh::contiguous(axes);
  const AxisGrid& grid = mesh.grid();
  FakeWorld fake({.rank = 1, .size = grid.num_positions()});
  const MeshGroups groups = must(MeshGroups::create(fake.world(), mesh));
  ProgramBuilder code("rows");
  code.dim("b", 3), code.dim("s", 64), code.dim("h", 64);
  const size_t x = code.input("x", "b s h");
  code.elementwise("f", "b s h -> b s h", {x}, {.calculation = {.function = Activation::kSilu}});
  const Program program = must(code.finish());
  std::vector<AxisState> from(grid.num_axes(), AxisState::replicated()), to = from;
  from[0] = AxisState::shard(1), to[0] = AxisState::shard(2);
  if (grid.num_axes() > 1) from[1] = AxisState::shard(0), to[1] = AxisState::shard(1);
  const TransitionForm form(grid, 3, from, to);
  RunLengths lengths = declared_lengths(program);
  const auto layout_of = [&](const std::vector<AxisState>& states) {
    return *value_layout(program, lengths, grid, x, states);
  };
  RankSteps(form.forward(layout_of), groups);  // groups are made once
  RankSteps(form.adjoint(layout_of), groups);
  const double fresh = median_us(501, [&](int i) {
    lengths[1].length = 65 + i;
    RankSteps(form.forward(layout_of), groups);
    RankSteps(form.adjoint(layout_of), groups);
  });
  const double searched = median_us(101, [&](int i) {
    lengths[1].length = 65 + i;
    plan_transition(layout_of(from), layout_of(to));
  });
  fmt::print("set-up of a ragged redistribution and its adjoint on {}: {:.1f} us (goal 50); a search takes {:.1f} us\n",
             grid.text(), fresh, searched);
}

}  // namespace

int main() {
  at::set_num_threads(1);
  chain();
  layer();
  setup({{"tp", 8}});
  setup({{"tp", 4}, {"dp", 2}});
  setup({{"tp", 2}, {"cp", 2}, {"dp", 2}});
  return 0;
}
