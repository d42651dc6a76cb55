#include "weft/runner/rule_check.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/sum.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/custom_function.h>

#include "tests/support/runner/program_runs.h"
#include "weft/program/custom_functions.h"
#include "weft/program/program_text.h"

namespace weft {
namespace {

Program one(const std::string& op) {
  const Result<Program> program = parse_program(
      "weft_program 1 one\ndim b 4\ndim s 5\ndim h 6\ninput x [b s h]\nweight w [h]\ny = " + op + "\n", "test");
  EXPECT_TRUE(program.ok()) << program.error().message();
  return *program;
}

/// What refutes it; empty: nothing does.
std::string refuted(const std::string& op, const CustomFunction& function) {
  const Program program = one(op);
  CustomOperators custom;
  EXPECT_FALSE(custom.add("mine", function).has_value());
  const auto error = find_wrong_rule(program, 0, custom);
  return error ? error->message() : "";
}

using Tensors = std::vector<at::Tensor>;

at::Tensor shifted(const Tensors& x, const CustomCall&) {
  return x[0] * x[1] + x[0].square();
}

at::Tensor centred(const Tensors& x, const CustomCall&) {
  return (x[0] - x[0].mean(1, /*keepdim=*/true)) * x[1];
}

at::Tensor scaled(const Tensors& x, const CustomCall&) {
  return x[0] * 3.0 * x[1];
}

/// Divides rows by the sum of their squares, which ranks share where h is cut.
at::Tensor shared(const Tensors& x, const CustomCall& call) {
  return x[0] / (1 + call.sum_inside(x[0].square().sum(-1)).unsqueeze(-1)) * x[1];
}

/// One whose backward forgets a factor.
struct Doubled : torch::autograd::Function<Doubled> {
  static at::Tensor forward(torch::autograd::AutogradContext*, const at::Tensor& x) { return x * 2; }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext*,
                                                 const torch::autograd::variable_list& gradients) {
    return {gradients[0]};
  }
};

TEST(RuleCheck, TrueRulesStand) {
  EXPECT_EQ(refuted("custom(x, w) : b s h, h -> b s h ; calls mine", shifted), "");
  EXPECT_EQ(refuted("custom(x, w) : b s h, h -> b s h ; calls mine ; whole s", centred), "");
  EXPECT_EQ(refuted("custom(x, w) : b s h, h -> b s h ; calls mine ; linear 0 ; linear 1", scaled), "");
  EXPECT_EQ(refuted("custom(x, w) : b s h, h -> b s h ; calls mine ; inside h", shared), "");
}

TEST(RuleCheck, WrongRulesAreRefutedByName) {
  const auto expect = [](const std::string& found, const std::string& expected) {
    EXPECT_NE(found.find(expected), std::string::npos) << found;
    EXPECT_EQ(found.substr(0, 3), "y: ") << found;
  };
  expect(refuted("custom(x, w) : b s h, h -> b s h ; calls mine", centred), "'cut s'");
  expect(refuted("custom(x, w) : b s h, h -> b s h ; calls mine ; linear 0", shifted), "'through'");
  expect(refuted("custom(x, w) : b s h, h -> b s h ; calls mine",
                 [](const Tensors& x, const CustomCall&) { return x[0] / (1 + x[0].square().sum(-1, true)) * x[1]; }),
         "'cut h'");
  expect(refuted("custom(x, w) : b s h, h -> b s h ; calls mine",
                 [](const Tensors& x, const CustomCall&) { return Doubled::apply(x[0]) * x[1]; }),
         "the gradient of operand 0 (x)");
}

TEST(RuleCheck, FunctionsThatCannotComputePartsRefuteTheirRuleByChoice) {
  const auto throws = [](const Tensors& x, const CustomCall&) {
    if (x[1].size(0) < 6) throw std::runtime_error("rows are too short");
    return x[0] * x[1];
  };
  EXPECT_EQ(
      refuted("custom(x, w) : b s h, h -> b s h ; calls mine", throws),
      "y: cannot be computed by 'cut h' on 2 ranks: rows are too short. Declare 'h' 'whole', or correct the rule.");
  EXPECT_EQ(refuted("custom(x, w) : b s h, h -> b s h ; calls mine ; whole h", throws), "");
  const auto views = [](const Tensors& x, const CustomCall&) { return x[0].view({-1, 5, 6}) * x[1]; };
  EXPECT_NE(refuted("custom(x, w) : b s h, h -> b s h ; calls mine ; whole h", views)
                .find("y: cannot be computed by 'cut s'"),
            std::string::npos);
  EXPECT_EQ(refuted("custom(x, w) : b s h, h -> b s h ; calls mine",
                    [](const Tensors& x, const CustomCall&) { return x[0].sum(-1); }),
            "y: cannot be computed on one device: its function made [4, 5], its rule says [4, 5, 6]. Correct its rule, "
            "or its "
            "function.");
}

/// What refutes a call of Weft's own functions on packed heads of two elements.
std::string refuted_call(const std::string& call) {
  const Result<Program> program = parse_program(
      "weft_program 1 one\ndim b 3\ndim s 2\ndim k 12 unit 6\ndim a 1\ndim d 2\ndim r 4\ninput x [b s k]\n"
      "data angles [b s a]\ndata tables [b s d]\nweight g [d]\nweight gr [r]\ny = custom(" +
          call + "\n",
      "test");
  EXPECT_TRUE(program.ok()) << program.error().message();
  const auto error = find_wrong_rule(*program, 0, CustomOperators::built_in());
  return error ? error->message() : "";
}

TEST(RuleCheck, CallsOfOwnFunctionsAreRefutedWhereADimIsNotWhole) {
  const std::string heads = " ; heads 2 2 2 ; calls ";
  const auto expect = [&](const std::string& call, const std::string& name, const std::string& choice) {
    const std::string found = refuted_call(call + heads + name);
    EXPECT_NE(found.find(choice), std::string::npos) << found;
    EXPECT_EQ(found.substr(0, 3), "y: ") << found;
  };
  // Ranks without angles, or with half of a weight.
  expect("x, angles) : b s k, b s a -> b s k ; linear 0", "rotary", "'cut a'");
  expect("x, tables) : b s k, b s d -> b s k ; linear 0", "rotary_table", "'cut d'");
  expect("x, g) : b s k, d -> b s k", "norm_queries", "'cut d'");
  expect("x, g) : b s k, d -> b s k", "norm_keys", "'cut d'");
  expect("x, gr) : b s k, r -> b s k ; inside k", "norm_keys", "'cut r'");
  expect("x, angles) : b s k, c s a -> b s k ; whole a", "rotary", "'cut b'");
  // Fewer rows, and groups of heads, than ranks are no mistake.
  EXPECT_EQ(refuted_call("x, angles) : b s k, b s a -> b s k ; whole a ; linear 0" + heads + "rotary"), "");
  EXPECT_EQ(refuted_call("x, tables) : b s k, b s d -> b s k ; whole d ; linear 0" + heads + "rotary_table"), "");
  EXPECT_EQ(refuted_call("x, g) : b s k, d -> b s k ; whole d" + heads + "norm_queries"), "");
  EXPECT_EQ(refuted_call("x, gr) : b s k, r -> b s k ; whole r ; inside k" + heads + "norm_keys"), "");
}

TEST(CustomOperators, AreThoseThatPlansOfProgramsKnow) {
  EXPECT_EQ(CustomOperators::built_in().names(), custom_functions());
}

TEST(CustomOperators, RunByNameAndAreNamedWhereTheyAreMissing) {
  const Program program = one("custom(x, w) : b s h, h -> b s h ; calls mine");
  on_thread_ranks(1, [&](World& world) {
    const MeshGroups groups = *MeshGroups::create(world, *Mesh::contiguous({{"one", 1}}));
    const auto missing = ProgramRunner::create(program, on_one_rank(program), groups);
    ASSERT_FALSE(missing.ok());
    EXPECT_NE(missing.error().message().find("y: is custom, and nobody has said what it computes"), std::string::npos)
        << missing.error().message();
    RunnerOptions options;
    ASSERT_FALSE(options.custom.add("mine", shifted).has_value());
    EXPECT_TRUE(options.custom.add("mine", shifted).has_value());
    ProgramRunner runner = *ProgramRunner::create(program, on_one_rank(program), groups, options);
    const at::Tensor x = random_tensor({4, 5, 6}, 1), w = random_tensor({6}, 2);
    EXPECT_EQ(largest_difference(runner.forward({x, w}, {})[0], x * w + x.square()), 0);
  });
}

}  // namespace
}  // namespace weft
