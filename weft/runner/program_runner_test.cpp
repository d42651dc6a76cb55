#include "weft/runner/program_runner.h"

#include <cmath>

#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/layer_norm.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/scaled_dot_product_attention.h>
#include <ATen/ops/silu.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include "tests/support/first_seed.h"
#include "tests/support/runner/program_runs.h"
#include "weft/program/divide_repeats.h"
#include "weft/program/program_text.h"
#include "weft/program/value_layout.h"

namespace weft {
namespace {

TEST(ProgramRunner, RandomStrategiesOfRandomProgramsAreOneRanks) {
  const std::vector<std::vector<Axis>> meshes = {
      {{"tp", 2}}, {{"tp", 3}}, {{"tp", 2}, {"dp", 2}}, {{"tp", 3}, {"dp", 2}}, {{"tp", 2}, {"cp", 2}, {"dp", 2}}};
  const uint64_t first = first_seed(1);
  size_t tried = 0;
  for (uint64_t seed = first; seed < first + draws(120); ++seed) {
    const std::vector<Axis>& axes = meshes[seed % meshes.size()];
    const Mesh mesh = *Mesh::contiguous(axes);
    const Program program = RandomProgram(seed).make();
    Random random(seed);
    const RunStrategy strategy = random_strategy(program, mesh.grid(), random);
    on_thread_ranks(mesh.grid().num_positions(),
                    [&](World& world) { expect_like_one_rank(world, mesh, program, strategy, 1000 * seed); });
    ++tried;
    if (testing::Test::HasFailure()) {
      ADD_FAILURE() << "seed " << seed << " on " << mesh.grid().text();
      break;
    }
  }
  EXPECT_GT(tried, 0u);
  RecordProperty("strategies", static_cast<int>(tried));
}

/// Other lengths of samples and rows, some gradients that nobody wants, a backward in two parts, forwards in flight.
RunVariant random_variant(const Program& program, Random& random) {
  RunVariant variant{.splits_backward = random() % 2 == 0, .in_flight = static_cast<int>(between(random, 1, 3))};
  if (random() % 2 == 0)
    variant.lengths = *changed_lengths(program, {{"b", between(random, 0, 4)}, {"s", between(random, 1, 6)}});
  if (random() % 2 == 0) {
    for (size_t value = 0; value < program.values.size(); ++value) variant.wants_gradient.push_back(random() % 2 == 0);
  }
  return variant;
}

TEST(ProgramRunner, LengthsFrozenWeightsAndTwoPhasesChangeNoNumber) {
  const std::vector<std::vector<Axis>> meshes = {{{"tp", 2}}, {{"tp", 3}}, {{"tp", 2}, {"dp", 2}}};
  const uint64_t first = first_seed(1);
  for (uint64_t seed = first; seed < first + draws(60); ++seed) {
    const Mesh mesh = *Mesh::contiguous(meshes[seed % meshes.size()]);
    const Program program = RandomProgram(seed).make();
    Random random(seed);
    const RunStrategy strategy = random_strategy(program, mesh.grid(), random);
    const std::vector<RunVariant> variants = {random_variant(program, random), random_variant(program, random)};
    on_thread_ranks(mesh.grid().num_positions(),
                    [&](World& world) { expect_like_one_rank(world, mesh, program, strategy, 1000 * seed, variants); });
    if (testing::Test::HasFailure()) {
      ADD_FAILURE() << "seed " << seed << " on " << mesh.grid().text();
      break;
    }
  }
}

/// One operator on one rank.
WholeRun run_operator(const std::string& text, const std::vector<at::Tensor>& operands) {
  const Program program = *parse_program("weft_program 1 one\n" + text, "test");
  WholeRun run;
  on_thread_ranks(1, [&](World& world) {
    const MeshGroups groups = *MeshGroups::create(world, *Mesh::contiguous({{"one", 1}}));
    ProgramRunner runner = *ProgramRunner::create(program, on_one_rank(program), groups);
    RunnerTape tape;
    run.outputs = runner.forward(operands, {.draws = some_draws()}, tape);
    run.gradients = runner.backward({at::ones_like(run.outputs[0])}, tape);
  });
  return run;
}

void expect_near(const at::Tensor& a, const at::Tensor& b) {
  ASSERT_EQ(a.sizes(), b.sizes());
  EXPECT_LE(largest_difference(a, b), 1e-12);
}

TEST(ProgramRunner, WeightsThatAreAddedToASingleRowHaveGradientsOfTheirOwn) {
  const Program program = *parse_program(
      "weft_program 1 p\ndim b 1\ndim h 3\ninput x [b h]\nweight c [h]\nweight d [h]\n"
      "y = add(x, c) : b h, h -> b h\nz = add(y, d) : b h, h -> b h\n",
      "test");
  on_thread_ranks(1, [&](World& world) {
    const MeshGroups groups = *MeshGroups::create(world, *Mesh::contiguous({{"one", 1}}));
    ProgramRunner runner = *ProgramRunner::create(program, on_one_rank(program), groups);
    const std::vector<at::Tensor> given = random_given(program, 1);
    RunCall call{.parameters = std::vector<ParameterPtr>(program.values.size())};
    for (const char* weight : {"c", "d"}) {
      ParameterPtr& parameter = call.parameters[*program.find_value(weight)];
      parameter = c10::make_intrusive<Parameter>();
      parameter->value = given[*program.find_value(weight)];
      parameter->gradient_type = at::kDouble;
    }
    const at::Tensor slope = random_tensor({1, 3}, 7);
    for (int time = 0; time < 2; ++time) {
      RunnerTape tape;
      runner.forward(given, call, tape);
      runner.backward({slope.clone()}, tape);
    }
    for (const char* weight : {"c", "d"})
      expect_near(call.parameters[*program.find_value(weight)]->gradient, 2 * slope[0]);
  });
}

// What operators compute is what LibTorch's functions of that name do.
TEST(LocalOperator, ComputesWhatItIsCalled) {
  const at::Tensor x = random_tensor({2, 3, 8}, 1), g = random_tensor({8}, 2), b = random_tensor({8}, 3);
  const std::string dims = "dim b 2\ndim s 3\ndim h 8\ninput x [b s h]\n";
  expect_near(
      run_operator(dims + "weight g [h]\nweight c [h]\ny = norm(x, g, c) : b s h, h, h -> b s h ; epsilon 1e-3\n",
                   {x, g, b})
          .outputs[0],
      at::layer_norm(x, {8}, g, b, 1e-3));
  expect_near(run_operator(dims + "y = softmax(x) : b s h -> b s h\n", {x}).outputs[0], at::softmax(x, -1));
  expect_near(run_operator(dims + "y = elementwise(x) : b s h -> b s h ; does gelu\n", {x}).outputs[0], at::gelu(x));
  const std::string gated =
      "dim b 2\ndim s 3\ndim p 8 unit 8\ndim f 4 unit 4\ninput x [b s p]\n"
      "y = elementwise(x) : b s f -> b s f ; as b s f ; does silu\n";
  expect_near(run_operator(gated, {x}).outputs[0], at::silu(x.narrow(-1, 0, 4)) * x.narrow(-1, 4, 4));
  at::Tensor targets = at::randint(0, 8, {2, 3}, at::detail::createCPUGenerator(4), at::kLong);
  targets[1][2] = -100;
  const WholeRun loss =
      run_operator(dims + "data t [b s]\ny = cross_entropy(x, t) : b s h, b s -> b s\n", {x, targets});
  expect_near(loss.outputs[0].flatten(), at::cross_entropy_loss(x.flatten(0, 1), targets.flatten(), {}, 0, -100));
  EXPECT_EQ(loss.gradients[0][1][2].abs().sum().item<double>(), 0);
  // Two queries with one key and one value.
  const std::string attention =
      "dim b 2\ndim s 3\ndim k 8 unit 8\ndim o 4 unit 4\ninput x [b s k]\n"
      "y = attention(x) : b s k -> b s k ; as b s o ; heads 2 1 2 ; mask causal\n";
  const auto heads = [&](int64_t begin, int64_t count) {
    return x.narrow(-1, begin, 2 * count).unflatten(-1, {count, 2}).transpose(1, 2);
  };
  const at::Tensor mixed = at::scaled_dot_product_attention(
      heads(0, 2), heads(4, 1).expand({2, 2, 3, 2}), heads(6, 1).expand({2, 2, 3, 2}), {}, 0, /*is_causal=*/true);
  expect_near(run_operator(attention, {x}).outputs[0], mixed.transpose(1, 2).flatten(2));
}

TEST(LocalOperator, DropsAsManyAsItSaysAndKeepsTheMean) {
  const WholeRun run = run_operator("dim b 100\ndim h 200\ninput x [b h]\ny = dropout(x) : b h -> b h ; drops 0.25\n",
                                    {at::ones({100, 200}, at::kDouble)});
  const at::Tensor& y = run.outputs[0];
  EXPECT_NEAR((y == 0).to(at::kDouble).mean().item<double>(), 0.25, 0.02);
  EXPECT_TRUE((y == 0).logical_or((y - 4.0 / 3).abs() < 1e-12).all().item<bool>());
  expect_near(run.gradients[0], y);
}

TEST(LocalOperator, AttentionDropsWeightsAndKeepsTheMean) {
  // Queries and keys are 0, so that a row sees all rows alike; values are 1.
  at::Tensor x = at::zeros({2, 100, 12}, at::kDouble);
  x.narrow(-1, 8, 4).fill_(1);
  const std::string text =
      "dim b 2\ndim s 100\ndim k 12 unit 12\ndim o 4 unit 4\ninput x [b s k]\n"
      "y = attention(x) : b s k -> b s k ; as b s o ; heads 1 1 4 ; drops 0.25\n";
  const at::Tensor y = run_operator(text, {x}).outputs[0];
  EXPECT_NEAR(y.mean().item<double>(), 1, 0.02);
  // The number of weights that stay, of 100, is binomial.
  EXPECT_NEAR((y * 75).std().item<double>(), std::sqrt(100 * 0.25 * 0.75), 0.6);
}

TEST(Unrolling, WritesEveryTimeOutWithWeightsOfItsOwn) {
  const Program program = *parse_program(
      "weft_program 1 p\ndim b 2\ndim h 3\ndata t [b]\ninput x [b h]\nrepeat 3 x\nweight w [h h]\n"
      "m = einsum(x, w) : b h, f h -> b f ; as b h\ny = add(x, m) : b h, b h -> b h\nend y\nz = scale(y) : b h -> b "
      "h\n",
      "test");
  const DividedProgram made = *unrolled(program);
  EXPECT_TRUE(made.program.repeats.empty());
  EXPECT_FALSE(find_wrong(made.program).has_value());
  std::string names;
  for (const Operator& op : made.program.operators) names += op.name + " ";
  EXPECT_EQ(names, "m.0-0 y.0-0 m.1-1 y.1-1 m.2-2 y.2-2 z ");
  const auto operands_of = [&](const char* op) {
    std::string text;
    for (const size_t value : made.program.operators[*made.program.find_operator(op)].operands)
      text += made.program.values[value].name + " ";
    return text;
  };
  EXPECT_EQ(operands_of("m.0-0"), "x w.0-0 ");
  EXPECT_EQ(operands_of("m.1-1"), "y.0-0 w.1-1 ");
  EXPECT_EQ(operands_of("y.2-2"), "y.1-1 m.2-2 ");
  EXPECT_EQ(operands_of("z"), "y.2-2 ");
  EXPECT_EQ(made.origins[3], (std::pair<size_t, size_t>(1, 1)));
}

TEST(ProgramRunner, WhatCannotRunIsNamed) {
  const std::string dims = "weft_program 1 p\ndim b 2\ndim h 4\ndim p 8 unit 2\ninput x [b h]\n";
  const std::vector<std::pair<std::string, std::string>> wrong = {
      {"y = elementwise(x) : b h -> b h\n", "does not say what it does"},
      {"y = custom(x) : b h -> b h\n", "nobody has said what it computes"},
      {"y = scale(x) : b h -> b h ; as b p\n", "8 and 4 elements in one dim of its rule"},
  };
  for (const auto& [text, expected] : wrong) {
    const Program program = *parse_program(dims + text, "test");
    on_thread_ranks(1, [&](World& world) {
      const MeshGroups groups = *MeshGroups::create(world, *Mesh::contiguous({{"one", 1}}));
      const auto runner = ProgramRunner::create(program, on_one_rank(program), groups);
      ASSERT_FALSE(runner.ok());
      EXPECT_NE(runner.error().message().find("y: "), std::string::npos) << runner.error().message();
      EXPECT_NE(runner.error().message().find(expected), std::string::npos) << runner.error().message();
    });
  }
  const Program program = *parse_program(dims + "y = softmax(x) : b h -> b h\n", "test");
  on_thread_ranks(1, [&](World& world) {
    const MeshGroups groups = *MeshGroups::create(world, *Mesh::contiguous({{"one", 1}}));
    RunStrategy strategy = on_one_rank(program);
    strategy.operators[0][0] = Choice::through();
    const auto runner = ProgramRunner::create(program, strategy, groups);
    ASSERT_FALSE(runner.ok());
    EXPECT_NE(runner.error().message().find("does not allow"), std::string::npos) << runner.error().message();
  });
}

}  // namespace
}  // namespace weft
