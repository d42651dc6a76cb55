#include "weft/runner/program_runner.h"

#include <random>

#include <ATen/Parallel.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/layer_norm.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/scaled_dot_product_attention.h>
#include <ATen/ops/silu.h>
#include <ATen/ops/softmax.h>
#include <gtest/gtest.h>

#include "tests/support/first_seed.h"
#include "tests/support/tensor/spread_tensor.h"
#include "weft/comm/threads/run_threads.h"
#include "weft/program/divide_repeats.h"
#include "weft/program/program_builder.h"
#include "weft/program/program_text.h"
#include "weft/program/value_layout.h"

namespace weft {
namespace {

using Random = std::mt19937_64;

int64_t between(Random& random, int64_t least, int64_t most) {
  return least + static_cast<int64_t>(random() % static_cast<uint64_t>(most - least + 1));
}

/// A random chain of operators over rows, with branches, a lookup in front and a loss behind some of them.
class RandomProgram {
 public:
  explicit RandomProgram(uint64_t seed) : random_(seed), code_("random") {
    code_.dim("b", between(random_, 1, 3)), code_.dim("s", between(random_, 1, 5));
    code_.dim("h", between(random_, 2, 6));
    const int64_t inner = between(random_, 2, 5), heads = between(random_, 1, 3), queries = between(random_, 1, 2);
    code_.dim("f", inner), code_.dim("p", 2 * inner, 2), code_.dim("v", between(random_, 3, 7));
    attention_ = {.heads = heads * queries, .kv_heads = heads, .head_dim = 2};
    attention_.mask = static_cast<Mask>(random_() % 4);
    attention_.window = between(random_, 1, 3);
    code_.dim("k", heads * (queries + 2) * 2, (queries + 2) * 2), code_.dim("o", heads * queries * 2, queries * 2);
  }

  Program make() {
    if (random_() % 3 == 0) {
      rows_ = code_.lookup("table", "b s, v h -> b s h", code_.data("ids", "b s"), weight("v h"));
    } else {
      rows_ = code_.input("x", "b s h");
    }
    const int64_t count = between(random_, 2, 5);
    for (number_ = 0; number_ < count; ++number_) add_layer(random_() % 11);
    if (random_() % 2 == 0) {
      const size_t logits = code_.einsum("logits", "b s h, v h -> b s v", {rows_, weight("v h")});
      code_.cross_entropy("loss", "b s v, b s -> b s", logits, code_.data("targets", "b s"));
    }
    const Result<Program> program = code_.finish();
    EXPECT_TRUE(program.ok()) << program.error().message();
    return *program;
  }

 private:
  std::string name(const char* base) { return fmt::format("{}{}", base, number_); }
  size_t weight(const char* dims) { return code_.weight(fmt::format("w{}", num_weights_++), dims); }
  OperatorOptions does() { return {.calculation = {.function = static_cast<Activation>(random_() % 7)}}; }

  void add_layer(uint64_t kind) {
    const size_t before = rows_;
    switch (kind) {
      case 0: {  // an MLP
        const size_t up = code_.einsum(name("up"), "b s h, f h -> b s f", {rows_, weight("f h")});
        const size_t biased = code_.sum_of(name("bias"), "b s f, f -> b s f", {up, weight("f")});
        const size_t act = code_.elementwise(name("act"), "b s f -> b s f", {biased}, does());
        rows_ = code_.einsum(name("down"), "b s f, h f -> b s h", {act, weight("h f")});
        break;
      }
      case 1: {  // a gated one, packed
        const size_t up = code_.einsum(name("up"), "b s h, f h -> b s f", {rows_, weight("p h")}, {.as = "b s p"});
        OperatorOptions gate = does();
        gate.as = "b s f";
        const size_t act = code_.elementwise(name("act"), "b s f -> b s f", {up}, gate);
        rows_ = code_.einsum(name("down"), "b s f, h f -> b s h", {act, weight("h f")});
        break;
      }
      case 2: {  // a gated one, of two products
        const size_t gate = code_.einsum(name("gate"), "b s h, f h -> b s f", {rows_, weight("f h")});
        const size_t up = code_.einsum(name("up"), "b s h, f h -> b s f", {rows_, weight("f h")});
        const size_t act = code_.elementwise(name("act"), "b s f, b s f -> b s f", {gate, up}, does());
        rows_ = code_.einsum(name("down"), "b s f, h f -> b s h", {act, weight("h f")});
        break;
      }
      case 3: {
        const size_t packed = code_.einsum(name("qkv"), "b s h, k h -> b s k", {rows_, weight("k h")});
        const size_t mixed =
            code_.attention(name("mix"), "b s k -> b s k", packed, {.as = "b s o", .attention = attention_});
        rows_ = code_.einsum(name("out"), "b s o, h o -> b s h", {mixed, weight("h o")});
        break;
      }
      case 4:
        rows_ = code_.norm(name("rms"), "b s h, h -> b s h", {rows_, weight("h")}, {.calculation = {.epsilon = 1e-2}});
        return;
      case 5:
        rows_ = code_.norm(name("layer"), "b s h, h, h -> b s h", {rows_, weight("h"), weight("h")},
                           {.calculation = {.epsilon = 1e-2}});
        return;
      case 6:
        rows_ = code_.softmax(name("softmax"), "b s h -> b s h", rows_);
        return;
      case 7:
        rows_ = code_.dropout(name("drop"), "b s h -> b s h", rows_, 0.3);
        return;
      case 8:
        rows_ = code_.add(OperatorKind::kScale, name("scale"), "b s h -> b s h", {rows_},
                          {.calculation = {.factor = -0.7}});
        return;
      case 9: {  // there and back, with all rows seeing each other
        const size_t turned = code_.reshape(name("turned"), "b s h -> h b s", rows_);
        const size_t seen = code_.einsum(name("seen"), "h b s, b t h -> b s t", {turned, rows_}, {.as = "b s s"});
        const size_t sums = code_.add(OperatorKind::kSum, name("sums"), "b s t -> b s", {seen});
        rows_ = code_.add(OperatorKind::kMultiply, name("weighed"), "b s h, b s -> b s h", {rows_, sums});
        break;
      }
      default: {  // rows as one
        const size_t gains = weight("h");
        rows_ = code_.add(OperatorKind::kMultiply, name("gain"), "b s h, h -> b s h", {rows_, gains});
        break;
      }
    }
    if (random_() % 2 == 0) rows_ = code_.sum_of(name("sum"), "b s h, b s h -> b s h", {before, rows_});
  }

  Random random_;
  ProgramBuilder code_;
  Attention attention_;
  size_t rows_ = 0;
  int64_t number_ = 0;
  int64_t num_weights_ = 0;
};

AxisState random_state(Random& random, size_t num_dims, bool has_gradient) {
  const uint64_t kind = random() % (num_dims + (has_gradient ? 3 : 1));
  if (kind < num_dims) return AxisState::shard(kind);
  return kind == num_dims       ? AxisState::replicated()
         : kind == num_dims + 1 ? AxisState::partial()
                                : AxisState::replicated_partial_grad();
}

/// Any that is legal, good or not.
RunStrategy random_strategy(const Program& program, const AxisGrid& grid, Random& random) {
  RunStrategy strategy;
  for (const Operator& op : program.operators) {
    const std::vector<Choice> choices = choices_of(op.rule);
    std::vector<Choice>& own = strategy.operators.emplace_back();
    for (size_t axis = 0; axis < grid.num_axes(); ++axis) own.push_back(choices[random() % choices.size()]);
  }
  for (const ProgramValue& value : program.values) {
    std::vector<AxisState>& own = strategy.sources.emplace_back();
    if (value.role == ProgramValue::Role::kResult) continue;
    for (size_t axis = 0; axis < grid.num_axes(); ++axis)
      own.push_back(random_state(random, value.dims.size(), value.role != ProgramValue::Role::kData));
  }
  return strategy;
}

RunStrategy on_one_rank(const Program& program) {
  RunStrategy strategy;
  for (size_t op = 0; op < program.operators.size(); ++op) strategy.operators.push_back({Choice::same()});
  for (const ProgramValue& value : program.values)
    strategy.sources.push_back(value.role == ProgramValue::Role::kResult
                                   ? std::vector<AxisState>{}
                                   : std::vector<AxisState>{AxisState::replicated()});
  return strategy;
}

/// Whole tensors for all that a program is given.
std::vector<at::Tensor> random_given(const Program& program, uint64_t seed) {
  std::vector<at::Tensor> given(program.values.size());
  for (size_t value = 0; value < program.values.size(); ++value) {
    const ProgramValue& one = program.values[value];
    std::vector<int64_t> shape;
    for (const size_t dim : one.dims) shape.push_back(program.dims[dim].length);
    if (one.role == ProgramValue::Role::kData) {
      const int64_t entries = program.dims[*program.find_dim("v")].length;
      given[value] = at::randint(0, entries, shape, at::detail::createCPUGenerator(seed + value), at::kLong);
    } else if (one.role != ProgramValue::Role::kResult) {
      given[value] = random_tensor(shape, seed + value);
    }
  }
  return given;
}

struct WholeRun {
  std::vector<at::Tensor> outputs;
  std::vector<at::Tensor> gradients;
};

constexpr RunDraws kDraws{.seed = 5, .step = 3};

/// What one rank makes of it.
WholeRun run_whole(World& world, const Program& program, const std::vector<at::Tensor>& given, uint64_t seed) {
  const Mesh alone = *Mesh::create({{"one", 1}}, {world.rank()});
  const MeshGroups groups = *MeshGroups::create(world, alone);
  ProgramRunner runner = *ProgramRunner::create(program, on_one_rank(program), groups);
  WholeRun run;
  run.outputs = runner.forward(given, kDraws);
  std::vector<at::Tensor> slopes;
  for (const at::Tensor& output : run.outputs) slopes.push_back(random_tensor(output.sizes().vec(), seed++));
  run.gradients = runner.backward(slopes);
  return run;
}

void expect_like_one_rank(World& world, const Mesh& mesh, const Program& program, const RunStrategy& strategy,
                          uint64_t seed) {
  const std::vector<at::Tensor> given = random_given(program, seed);
  const WholeRun whole = run_whole(world, program, given, seed + 500);
  const MeshGroups groups = *MeshGroups::create(world, mesh), checking = *MeshGroups::create(world, mesh);
  Result<ProgramRunner> runner = ProgramRunner::create(program, strategy, groups);
  ASSERT_TRUE(runner.ok()) << runner.error().message();
  std::vector<at::Tensor> parts(given.size());
  for (size_t value = 0; value < given.size(); ++value) {
    if (!given[value].defined()) continue;
    const Layout& layout = runner->layout(value);
    parts[value] = program.has_gradient(value) ? spread(given[value], layout, groups.position(), seed + 900 + value)
                                               : block_of(given[value], layout.box(groups.position())).contiguous();
  }
  const Traffic before = groups.traffic();
  const std::vector<at::Tensor> outputs = runner->forward(parts, kDraws);
  std::vector<at::Tensor> slopes;
  for (size_t i = 0; i < outputs.size(); ++i) {
    const size_t value = runner->outputs()[i];
    expect_spread(outputs[i], runner->layout(value), whole.outputs[i], checking, program.values[value].name);
    const at::Tensor slope = random_tensor(whole.outputs[i].sizes().vec(), seed + 500 + i);
    slopes.push_back(spread(slope, runner->layout(value).gradient(), groups.position(), seed + 700 + i));
  }
  const std::vector<at::Tensor> gradients = runner->backward(slopes);
  Traffic planned = runner->planned_traffic();
  planned += runner->planned_data_traffic();
  const Traffic after = groups.traffic();
  EXPECT_EQ((Traffic{after.sent - before.sent, after.received - before.received}), planned.in_bytes(8));
  for (size_t value = 0; value < given.size(); ++value) {
    if (!given[value].defined() || !program.has_gradient(value) || program.readers_of(value).empty()) continue;
    expect_spread(gradients[value], runner->layout(value).gradient(), whole.gradients[value], checking,
                  "gradient of " + program.values[value].name);
  }
}

void on_ranks(int64_t size, const std::function<void(World&)>& body) {
  at::set_num_threads(1);
  const auto error = run_thread_ranks(size, {.timeout = std::chrono::seconds(60)}, [&](World& world) {
    at::set_num_threads(1);
    body(world);
  });
  ASSERT_FALSE(error.has_value()) << error->message();
}

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
    on_ranks(mesh.grid().num_positions(),
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

/// One operator on one rank.
WholeRun run_operator(const std::string& text, const std::vector<at::Tensor>& operands) {
  const Program program = *parse_program("weft_program 1 one\n" + text, "test");
  WholeRun run;
  on_ranks(1, [&](World& world) {
    const MeshGroups groups = *MeshGroups::create(world, *Mesh::contiguous({{"one", 1}}));
    ProgramRunner runner = *ProgramRunner::create(program, on_one_rank(program), groups);
    run.outputs = runner.forward(operands, kDraws);
    run.gradients = runner.backward({at::ones_like(run.outputs[0])});
  });
  return run;
}

void expect_near(const at::Tensor& a, const at::Tensor& b) {
  ASSERT_EQ(a.sizes(), b.sizes());
  EXPECT_LE(largest_difference(a, b), 1e-12);
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
      {"y = scale(x) : b h -> b h ; as b p\n", "4 and 8 elements in one dim of its rule"},
  };
  for (const auto& [text, expected] : wrong) {
    const Program program = *parse_program(dims + text, "test");
    on_ranks(1, [&](World& world) {
      const MeshGroups groups = *MeshGroups::create(world, *Mesh::contiguous({{"one", 1}}));
      const auto runner = ProgramRunner::create(program, on_one_rank(program), groups);
      ASSERT_FALSE(runner.ok());
      EXPECT_NE(runner.error().message().find("y: "), std::string::npos) << runner.error().message();
      EXPECT_NE(runner.error().message().find(expected), std::string::npos) << runner.error().message();
    });
  }
  const Program program = *parse_program(dims + "y = softmax(x) : b h -> b h\n", "test");
  on_ranks(1, [&](World& world) {
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
