#include "weft/program/program_module.h"

#include <tuple>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "weft/program/block_program.h"
#include "weft/program/name_weights.h"
#include "weft/program/program_blocks.h"
#include "weft/program/program_text.h"
#include "weft/program/text_ends.h"

namespace weft {
namespace {

/// A small transformer, declared as families do.
Module declared_module(bool is_tied) {
  Module module;
  module.width = module.output_width = 32;
  const TransformerBlockShape shape{
      .name = "layer",
      .width = 32,
      .attention = {.attention = {.heads = 4, .kv_heads = 2, .head_dim = 8, .mask = Mask::kCausal},
                    .q_bias = 32,
                    .k_bias = 16,
                    .v_bias = 16},
      .mlp = {.intermediate = 48}};
  module.distinct_layers = {make_transformer_block(shape)};
  module.layers = {0, 0, 0};
  module.entry = make_embedding(100, 32, -1);
  module.exit = make_head(100, 32, make_norm("norm", NormKind::kRms, 32, 1e-6), is_tied);
  return module;
}

ProgramModel model_of_text(const std::string& text) {
  const auto program = parse_program(text, "test");
  EXPECT_TRUE(program.ok()) << program.error().message();
  auto model = model_of(*program);
  EXPECT_TRUE(model.ok()) << model.error().message();
  return *std::move(model);
}

std::string refusal_of(const std::string& text) {
  const auto program = parse_program("weft_program 1 t\ndim b 2\ndim s 3\ndim h 4\ndim f 8\ndim v 9\n" + text, "test");
  if (!program) return program.error().message();
  const auto model = model_of(*program);
  return model ? "" : model.error().message();
}

TEST(ProgramModule, OfADeclaredModelHasItsParametersAndProducts) {
  for (const bool is_tied : {false, true}) {
    const Module declared = declared_module(is_tied);
    const auto program = program_of(declared, {.samples = 2, .rows = 16}, "same");
    ASSERT_TRUE(program.ok()) << program.error().message();
    const auto model = model_of(*program);
    ASSERT_TRUE(model.ok()) << model.error().message();
    const Module& own = model->module;
    EXPECT_EQ(num_parameters(own), num_parameters(declared));
    EXPECT_EQ(model->is_tied, is_tied);
    EXPECT_EQ(model->numbers.rows.rows_per_sample, 16);
    ASSERT_EQ(own.layers.size(), declared.layers.size());
    for (int64_t place = 0; place < num_blocks(own); ++place) {
      EXPECT_EQ(num_parameters(block_at(own, place)), num_parameters(block_at(declared, place)));
      // The same products in the same order, cut the same way.
      const auto products = [](const Block& block) {
        std::vector<std::tuple<int64_t, int64_t, int64_t, TensorSplit>> listed;
        for (const Op& op : block.ops) {
          if (const auto* m = std::get_if<Matmul>(&op.shape))
            listed.emplace_back(m->in, m->out, m->bias_elements, op.split());
        }
        return listed;
      };
      EXPECT_EQ(products(block_at(own, place)), products(block_at(declared, place)));
    }
  }
}

TEST(ProgramModule, NamesWeightsByLayer) {
  const ProgramModel model = model_of_text(R"(weft_program 1 t
dim b 2
dim h 4
dim f 8
input x [b h]
repeat 2 x
weight w [f h]
up = einsum(x, w) : b h, f h -> b f
weight c [f]
upc = add(up, c) : b f, f -> b f
weight d [h f]
y = einsum(upc, d) : b f, h f -> b h
end y
loss = sum(y) : b h ->
)");
  std::vector<std::string> names;
  for (int64_t place = 0; place < num_blocks(model.module); ++place) {
    for (const auto& together : weight_names(model.module, place))
      names.insert(names.end(), together.begin(), together.end());
  }
  EXPECT_EQ(names, (std::vector<std::string>{"layers.0.w", "layers.0.c", "layers.0.d", "layers.1.w", "layers.1.c",
                                             "layers.1.d"}));
  EXPECT_EQ(model.numbers.targets_per_sample, 4);
  EXPECT_TRUE(model.numbers.marks_layers);
  ASSERT_EQ(model.numbers.inputs.size(), 1);
  EXPECT_EQ(model.numbers.inputs[0].shape, std::vector<int64_t>{4});
}

TEST(ProgramModule, CutsEverySecondProduct) {
  const ProgramModel model = model_of_text(R"(weft_program 1 t
dim b 2
dim i 4
dim f 8
dim g 6
dim o 3
input x [b i]
weight w1 [f i]
a = einsum(x, w1) : b i, f i -> b f
weight w2 [g f]
c = einsum(a, w2) : b f, g f -> b g
weight w3 [o g]
y = einsum(c, w3) : b g, o g -> b o
loss = sum(y) : b o ->
)");
  EXPECT_FALSE(model.numbers.marks_layers);
  std::vector<TensorSplit> splits;
  for (int64_t place = 0; place < num_blocks(model.module); ++place) {
    for (const Op& op : block_at(model.module, place).ops) {
      if (std::holds_alternative<Matmul>(op.shape)) splits.push_back(op.split());
    }
  }
  EXPECT_EQ(splits, (std::vector<TensorSplit>{TensorSplit::kColumn, TensorSplit::kRow, TensorSplit::kColumn}));
}

TEST(ProgramModule, WhatCannotBeTrainedIsRefusedByName) {
  const auto expect = [](const std::string& text, const std::string& says) {
    EXPECT_NE(refusal_of(text).find(says), std::string::npos) << refusal_of(text);
  };
  expect("data ids [b s]\ny = lookup(ids, table) : b s, v h -> b s h\n", "'table' is not there yet");
  expect("input x [b s h]\nweight w [f h]\ny = einsum(x, w) : b s h, f h -> b s f\n", "y: is what the program makes");
  expect(
      "input x [b h]\ndata t [s h]\nweight w [f h]\ny = einsum(x, w) : b h, f h -> b f\nloss = sum(y) : b f ->\n"
      "u = scale(t) : s h -> s h\n",
      "t: lacks the dim of samples 'b'");
  expect("input x [b s h]\nz = custom(x) : b s h -> b s h\nloss = sum(z) : b s h ->\n",
         "z: is custom, and 'z' is no function that training knows");
  expect("input x [b s h]\nz = custom(x) : b s h -> b s h ; calls norm_query\nloss = sum(z) : b s h ->\n",
         "Did you mean 'norm_queries'?");
  expect("input x [b s h]\nq = einsum(x, x) : b s h, b s h -> b s\nloss = sum(q) : b s ->\n",
         "q: is no product of rows with a weight");
  expect(
      "dim k 24 unit 12\ndim o 16 unit 8\ninput x [b s h]\nweight w [k h]\nq = einsum(x, w) : b s h, k h -> b s k\n"
      "a = attention(q) : b s k -> b s k ; as b s o ; heads 4 2 4\nloss = sum(a) : b s o ->\n",
      "a: has 4 heads, 2 of keys, of 4 elements, but reads 'dim k 24 unit 12' and makes 'dim o 16 unit 8'");
  expect(
      "input x [b h]\nweight w [h f]\na = einsum(x, w) : b h, h f -> b f\nd = einsum(a, w) : b f, h f -> b h\n"
      "loss = sum(d) : b h ->\n",
      "d: reads the weight 'w', which 'a' reads, too");
  expect(
      "input x [b h]\nweight w [f h]\na = einsum(x, w) : b h, f h -> b f\nl = sum(a) : b f ->\nm = sum(a) : b f ->\n",
      "are both read by nobody");
  expect("dim p 8 unit 2\ninput x [b s h]\ny = softmax(x) : b s h -> b s h ; as b s p\nloss = sum(y) : b s p ->\n",
         "y: has 8 and 4 elements in one dim of its rule");
  expect(
      "dim p 12 unit 3\ninput x [b p]\ny = elementwise(x) : b h -> b h ; as b h ; does silu\nloss = sum(y) : b h ->\n",
      "y: has 4 and 12 elements in one dim of its rule");
  expect("dim p 8 unit 2\ninput x [b s h]\ny = reshape(x) : b s h -> b s h ; as b s p\nloss = sum(y) : b s p ->\n",
         "y: makes 48 elements of 24");
  expect(
      "dim e 2\ndim r 6\ninput x [b s h]\nweight w [e h]\nl = einsum(x, w) : b s h, e h -> b s e\n"
      "route = softmax(l) : b s e -> b s e ; top 1\nsent = dispatch(x, route) : b s h, b s e -> e (b s) h ; as e r h\n"
      "y = combine(sent, route) : e (b s) h, b s e -> b s h\nloss = sum(y) : b s h ->\n",
      "sent: is a dispatch: programs with experts are not trained yet");
  expect("dim none 0\ninput x [b none]\nloss = sum(x) : b none ->\n", "none: is a dim of no elements");
  expect("input x [b h]\nweight w [f h]\nloss = sum(x) : b h ->\n", "w: is a weight that no operator reads");
}

TEST(ProgramModule, FunctionsAreCalledWithWhatTheyTake) {
  const auto refusal = [](const std::string& dims, const std::string& call) {
    return refusal_of("dim d 4\ndim a 2\ndim one 1\n" + dims +
                      "\ninput x [b s h]\ndata angles [b s a]\nweight w [k h]\n" +
                      (call.starts_with("q, g") ? "weight g [d]\n" : "") +
                      "q = einsum(x, w) : b s h, k h -> b s k\nz = custom(" + call + "\nloss = sum(z) : b s k ->\n");
  };
  const auto expect = [&](const std::string& dims, const std::string& call, const std::string& says) {
    EXPECT_NE(refusal(dims, call).find(says), std::string::npos) << refusal(dims, call);
  };
  const std::string rows = "dim k 32 unit 16", turns = "q, angles) : b s k, b s a -> b s k ; whole a ; linear 0";
  expect(rows, turns + " ; calls rotary", "z: calls 'rotary', but says no heads");
  expect(rows, turns + " ; heads 3 2 4 ; calls rotary", "but has 3 heads for 2 of keys");
  expect("dim k 40", turns + " ; heads 4 2 4 ; calls rotary", "and 'q' is 'dim k 40'. A unit is what");
  expect("dim k 40", turns + " ; heads 4 2 4 ; calls rotary", "'dim k 32 unit 16'");
  expect("dim k 64 unit 32", turns + " ; heads 4 2 8 ; calls rotary",
         "'angles' has 2 numbers a row. Heads of 8 elements need 4: an angle for each pair");
  expect(rows, turns + " ; heads 4 2 4 ; calls rotary_table", "need 4: cosines and, behind them, sines");
  expect("dim k 24 unit 12", turns + " ; heads 4 2 3 ; calls rotary", "Elements turn in pairs");
  expect(rows, "q) : b s k -> b s k ; heads 4 2 4 ; calls rotary", "but reads 1 operands");
  const std::string norms = "q, g) : b s k, d -> b s k ; whole d";
  expect("dim k 64 unit 32", norms + " ; heads 4 2 8 ; calls norm_queries",
         "'g' has 4 elements. A weight of 8 elements norms every head by itself, one of 32 all heads of a row");
  expect("dim k 64 unit 32", norms + " ; heads 4 2 8 ; calls norm_keys", "one of 16 all heads of a row");
  expect(rows, "q, g) : b s k, d -> b s k ; whole d ; calls norm_keys", "but says no heads");
}

// How many samples run at once is for a plan to say: no other dim may follow.
TEST(ProgramModule, NoOtherDimIsCalledAsThatOfSamples) {
  const std::string begin = "dim c 2\ndim d 2\ninput x [b c]\ninput z [b d]\n";
  const std::string end =
      "weight w1 [f c]\nup = einsum(s, w1) : b i, f i -> b f\nact = elementwise(up) : b f -> b f ; does relu\n"
      "weight w2 [h f]\ny = einsum(act, w2) : b f, h f -> b h\nloss = sum(y) : b h ->\n";
  const std::string crossed = refusal_of(begin + "s = add(x, z) : p q, q p -> p q ; as b c\n" + end);
  EXPECT_NE(crossed.find("s: calls the dim of samples 'b' and the dim 'd' of 'z' both 'p' in its rule "
                         "'p q, q p -> p q'"),
            std::string::npos)
      << crossed;
  const std::string scaled = refusal_of(
      "dim c 2\ninput x [b h]\nweight g [c]\ns = multiply(x, g) : p q, p -> p q ; as b h\nloss = sum(s) : p q ->\n");
  EXPECT_NE(scaled.find("calls the dim of samples"), std::string::npos) << scaled;
  // Any letter does, as long as it is the samples' own.
  EXPECT_EQ(refusal_of(begin + "s = add(x, z) : p q, p q -> p q ; as b c\n" + end), "");
}

TEST(ProgramModule, KnowsHowManySamplesItsTensorsHaveRoomFor) {
  const auto most = [](const std::string& features) {
    return model_of_text("weft_program 1 t\ndim b 4\ndim h 8\ndim f " + features +
                         "\ninput x [b h]\nweight w [f h]\ny = einsum(x, w) : b h, f h -> b f\n"
                         "loss = sum(y) : b f ->\n")
        .numbers.most_samples;
  };
  EXPECT_EQ(most("16"), (int64_t{1} << 53) / 16);
  EXPECT_EQ(most("17179869184"), int64_t{1} << 19);
}

TEST(ProgramModule, LayersAreCountedBeforeTheyAreListed) {
  const auto refusal = [](int64_t first) {
    return refusal_of("input x [b h]\nrepeat " + std::to_string(first) +
                      " x\nr = scale(x) : b h -> b h\nend r\nrepeat 5000 r\nq = scale(r) : b h -> b h\nend q\n"
                      "loss = sum(q) : b h ->\n");
  };
  EXPECT_EQ(refusal(5000), "");
  EXPECT_NE(refusal(5001).find("has 10,001 layers, at most 10,000 are possible"), std::string::npos) << refusal(5001);
}

// The layer ends as late as one value, whole in its features, goes on: before the loss.
TEST(ProgramModule, CutsLongProgramsIntoBlocks) {
  std::string text = "weft_program 1 t\ndim b 2\ndim h 4\ninput x [b h]\nweight w [h]\n";
  text += "r0 = multiply(x, w) : b h, h -> b h\n";
  const int count = 3000;
  for (int i = 1; i < count; ++i) text += fmt::format("r{} = scale(r{}) : b h -> b h\n", i, i - 1);
  text += fmt::format("r{} = add(r{}, r{}) : b h, b h -> b h\nloss = sum(r{}) : b h ->\n", count, count - 1, count / 2,
                      count);
  const ProgramModel model = model_of_text(text);
  EXPECT_EQ(model.module.distinct_layers.front().program->num_own, static_cast<size_t>(count) + 1);
  EXPECT_EQ(model.module.exit.program->num_own, 1u);
}

}  // namespace
}  // namespace weft
