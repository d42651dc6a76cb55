#include "weft/program/member_groups.h"

#include <ATen/TensorOperators.h>
#include <gtest/gtest.h>

#include "tests/support/runner/program_runs.h"
#include "weft/layers/linear.h"
#include "weft/layers/norm.h"
#include "weft/program/program_text.h"

// Operators that are computed together, against the layers' functions that compute them.

namespace weft {
namespace {

/// A residual sum and its norm, and an MLP with biases behind them.
constexpr const char* kText = R"(weft_program 1 half
dim b 2
dim s 3
dim h 8
dim p 12 unit 12
dim f 6 unit 6
input x [b s h]
input y [b s h]
weight g [h]
weight u [p h]
weight v [p]
weight d [h f]
weight c [h]
rows = add(x, y) : b s h, b s h -> b s h
n = norm(rows, g) : b s h, h -> b s h ; epsilon 1e-3
up = einsum(n, u) : b s h, f h -> b s f ; as b s p
wide = add(up, v) : b s f, f -> b s f ; as b s p
inner = elementwise(wide) : b s f -> b s f ; as b s f ; does silu
down = einsum(inner, d) : b s f, h f -> b s h
mapped = add(down, c) : b s h, h -> b s h
out = add(rows, mapped) : b s h, b s h -> b s h
)";

TEST(MemberGroups, AreSumsWithTheirNormsAndProductsWithActivationsAndBiases) {
  const Program program = *parse_program(kText, "test");
  const AxisGrid grid = *AxisGrid::create({{"one", 1}});
  const ProgramFlow flow =
      *flow_of(program, on_one_rank(program), grid, std::vector<bool>(program.values.size(), true), false);
  ASSERT_EQ(flow.segments.size(), 1u);
  std::string found;
  for (const MemberGroup& group : groups_of(flow, flow.segments[0])) {
    for (size_t member = group.first; member <= group.last(); ++member)
      found += program.operators[flow.segments[0].members[member].op].name + " ";
    found += "| ";
  }
  EXPECT_EQ(found, "rows n | up wide | inner down mapped | out | ");
}

TEST(MemberGroups, GiveTheLayersOwnBits) {
  const Program program = *parse_program(kText, "test");
  for (const at::ScalarType type : {at::kFloat, at::kDouble, at::kBFloat16}) {
    std::vector<at::Tensor> given = random_given(program, 3);
    for (at::Tensor& each : given) {
      if (each.defined()) each = each.to(type);
    }
    const at::Tensor slope = random_tensor({2, 3, 8}, 77).to(type);
    std::vector<at::Tensor> outputs, gradients;
    on_thread_ranks(1, [&](World& world) {
      const MeshGroups groups = *MeshGroups::create(world, *Mesh::contiguous({{"one", 1}}));
      ProgramRunner runner = *ProgramRunner::create(program, on_one_rank(program), groups);
      RunnerTape tape;
      outputs = runner.forward(given, {}, tape);
      gradients = runner.backward({slope}, tape);
    });
    const auto tensor = [&](const char* name) { return given[*program.find_value(name)]; };
    const auto parameter = [&](const char* name) {
      auto made = c10::make_intrusive<Parameter>();
      made->value = tensor(name).clone().set_requires_grad(true);
      made->gradient_type = type == at::kBFloat16 ? at::kFloat : type;
      return made;
    };
    const ParameterPtr g = parameter("g"), u = parameter("u"), v = parameter("v"), d = parameter("d"),
                       c = parameter("c");
    const at::Tensor x = tensor("x").flatten(0, 1).clone().set_requires_grad(true);
    const at::Tensor y = tensor("y").flatten(0, 1).clone().set_requires_grad(true);
    const RowsAndNorm both = add_and_norm(x, y, g, {}, 1e-3);
    const at::Tensor wide = linear(both.normed, u, v, {});
    const at::Tensor mapped = activated_linear(wide, {.activation = Activation::kSilu, .is_gated = true}, d, c, {});
    const at::Tensor out = both.rows + mapped;
    out.backward(slope.flatten(0, 1));
    EXPECT_TRUE(outputs[0].flatten(0, 1).equal(out.detach())) << type;
    const auto found = [&](const char* name) { return gradients[*program.find_value(name)]; };
    EXPECT_TRUE(found("x").flatten(0, 1).equal(x.grad())) << type;
    EXPECT_TRUE(found("y").flatten(0, 1).equal(y.grad())) << type;
    const std::vector<std::pair<const char*, ParameterPtr>> weights = {
        {"g", g}, {"u", u}, {"v", v}, {"d", d}, {"c", c}};
    for (const auto& [name, weight] : weights) EXPECT_TRUE(found(name).equal(weight->gradient)) << name << " " << type;
  }
}

}  // namespace
}  // namespace weft
