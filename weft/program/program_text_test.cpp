#include "weft/program/program_text.h"

#include <array>

#include <gtest/gtest.h>

#include "weft/program/program_builder.h"

namespace weft {
namespace {

constexpr const char* kMlp = R"(weft_program 1 mlp
dim b 8
dim s 512
dim h 64
dim f 256
dim p 512 unit 2
input x [b s h]
repeat 4 x
weight g [h]
n = norm(x, g) : b s h, h -> b s h
weight wu [p h]
up = einsum(n, wu) : b s h, f h -> b s f ; as b s p
act = elementwise(up) : b s f -> b s f
weight wd [h f]
down = einsum(act, wd) : b s f, h f -> b s h
y = add(x, down) : b s h, b s h -> b s h
end y
)";

std::string message_of(const std::string& text) {
  const Result<Program> program = parse_program(text, "test");
  return program ? "" : program.error().message();
}

std::string with(std::string text, const std::string& what, const std::string& instead) {
  const size_t place = text.find(what);
  EXPECT_NE(place, std::string::npos) << what;
  return text.replace(place, what.size(), instead);
}

TEST(ProgramText, ReadsWhatItWrites) {
  const Result<Program> program = parse_program(kMlp, "test");
  ASSERT_TRUE(program) << program.error().message();
  EXPECT_EQ(program->operators.size(), 5u);
  ASSERT_EQ(program->repeats.size(), 1u);
  EXPECT_EQ(program->repeats[0].count, 4);
  const std::string text = program_text(*program);
  const Result<Program> again = parse_program(text, "again");
  ASSERT_TRUE(again) << again.error().message() << "\n" << text;
  EXPECT_EQ(*again, *program);
  EXPECT_EQ(program_text(*again), text);
}

TEST(ProgramText, ANameThatIsNoWordIsWrittenAsOne) {
  Program program = *parse_program(kMlp, "test");
  for (const char* name : {"two words", "a\nb", "a\x1b[31m", "\xff", ""}) {
    program.name = name;
    const Result<Program> again = parse_program(program_text(program), "again");
    ASSERT_TRUE(again) << again.error().message();
    EXPECT_EQ(again->operators.size(), program.operators.size());
  }
}

TEST(ProgramText, TheBuilderWritesTheSameProgram) {
  ProgramBuilder code("mlp");
  code.dim("b", 8), code.dim("s", 512), code.dim("h", 64), code.dim("f", 256), code.dim("p", 512, 2);
  const size_t x = code.input("x", "b s h");
  code.begin_repeat(4, x);
  const size_t g = code.weight("g", "h");
  const size_t n = code.norm("n", "b s h, h -> b s h", {x, g});
  const size_t wu = code.weight("wu", "p h");
  const size_t up = code.einsum("up", "b s h, f h -> b s f", {n, wu}, {.as = "b s p"});
  const size_t act = code.elementwise("act", "b s f -> b s f", {up});
  const size_t wd = code.weight("wd", "h f");
  const size_t down = code.einsum("down", "b s f, h f -> b s h", {act, wd});
  code.end_repeat(code.sum_of("y", "b s h, b s h -> b s h", {x, down}));
  const Result<Program> built = code.finish();
  ASSERT_TRUE(built) << built.error().message();
  EXPECT_EQ(*built, *parse_program(kMlp, "test"));
}

TEST(ProgramText, CustomOperatorsDeclareTheirRule) {
  const std::string text =
      "weft_program 1 c\ndim b 4\ndim s 8\ndim h 2\ninput x [b s h]\ninput y [b h]\n"
      "z = custom(x, y) : b s h, b h -> b s h ; inside s ; whole h ; linear 0 1\n";
  const Result<Program> program = parse_program(text, "test");
  ASSERT_TRUE(program) << program.error().message();
  const Rule& rule = program->operators[0].rule;
  EXPECT_EQ(rule.dims[*rule.find("s")].kind, DimKind::kInside);
  EXPECT_EQ(rule.dims[*rule.find("h")].kind, DimKind::kWhole);
  EXPECT_EQ(rule.linear, (std::vector<std::vector<size_t>>{{0, 1}}));
  EXPECT_EQ(*parse_program(program_text(*program), "again"), *program);
}

TEST(ProgramText, SaysWhatOperatorsCompute) {
  const std::string text =
      "weft_program 1 c\ndim b 4\ndim h 6\ndim p 12 unit 2\ninput x [b p]\nweight g [h]\n"
      "a = elementwise(x) : b h -> b h ; as b h ; does silu\n"
      "d = dropout(a) : b h -> b h ; drops 0.25\n"
      "n = norm(d, g) : b h, h -> b h ; epsilon 1e-05\n"
      "y = scale(n) : b h -> b h ; factor 0.1\n";
  const Result<Program> program = parse_program(text, "test");
  ASSERT_TRUE(program) << program.error().message();
  EXPECT_EQ(program->operators[0].calculation.function, Activation::kSilu);
  EXPECT_EQ(program->operators[1].calculation.dropout, 0.25);
  EXPECT_EQ(program->operators[2].calculation.epsilon, 1e-5);
  EXPECT_EQ(program->operators[3].calculation.factor, 0.1);
  EXPECT_EQ(*parse_program(program_text(*program), "again"), *program);
  const std::vector<std::array<std::string, 3>> mistakes = {
      {"does silu", "does silou", "'silou' is no function of elements"},
      {"drops 0.25", "drops 1", "at least 0 and below 1"},
      {"drops 0.25", "drops nan", "at least 0 and below 1"},
      {"drops 0.25", "does silu", "Only one of kind elementwise does"},
      {"epsilon 1e-05", "epsilon 0", "above 0"},
      {"factor 0.1", "factor inf", "finite"},
      {"factor 0.1", "factor ten", "'ten' is no number"},
  };
  for (const auto& [what, instead, expected] : mistakes)
    EXPECT_NE(message_of(with(text, what, instead)).find(expected), std::string::npos) << instead;
}

TEST(ProgramText, MistakesAreNamedWithOperatorAndDim) {
  const auto has = [](const std::string& message, const std::vector<std::string>& parts) {
    for (const std::string& part : parts)
      EXPECT_NE(message.find(part), std::string::npos) << part << " in: " << message;
  };
  has(message_of(with(kMlp, "weight wd [h f]", "weight wd [h q]")), {"line 14", "wd", "'q' does not exist"});
  has(message_of(with(kMlp, "weight wd [h f]", "weight wd [h s]")), {"down", "'f'", "512 units", "256"});
  has(message_of(with(kMlp, "elementwise(up)", "elementwise(upp)")), {"line 13", "act: 'upp' is not there yet. "});
  has(message_of(with(kMlp, "norm(x, g)", "norm(y, g)")), {"n: 'y' is not there yet, but made later"});
  has(message_of(with(kMlp, "b s f, h f -> b s h", "b s f, h f, f -> b s h")), {"down", "reads 2 tensors"});
  has(message_of(with(kMlp, "act = elementwise(up) : b s f -> b s f", "act = elementwise(up) : b s f -> b s")),
      {"act", "sums over 'f'"});
  has(message_of(with(kMlp, "dim p 512 unit 2", "dim p 512 unit 3")), {"line 6: p", "units of 3"});
  has(message_of(with(kMlp, "einsum(n, wu)", "einsun(n, wu)")), {"'einsun' is no kind", "Did you mean 'einsum'"});
  has(message_of(with(kMlp, "end y\n", "")), {"has no end"});
  has(message_of("dim b 8\n"), {"weft_program 1"});
  has(message_of("weft_program 1 a\ndim b 2\ninput x [b]\ny = attention(x) : b -> b\n"), {"y", "no dim of rows"});
}

TEST(ProgramText, RulesThatTheirKindCannotComputeAreNamed) {
  const std::string leaves =
      "weft_program 1 t\ndim b 2\ndim s 3\ndim h 4\ndim v 5\ninput x [b s h]\ndata ids [b s]\ndata one [b]\n"
      "weight g [h]\nweight gs [s]\nweight table [v h]\ndata all [b s h]\n";
  const std::vector<std::array<std::string, 2>> mistakes = {
      {"cross_entropy(x, one) : b s h, b -> b s", "other targets than one for every row of its logits"},
      {"cross_entropy(x, all) : b s h, b s h -> b s", "other targets than one for every row of its logits"},
      {"cross_entropy(x, ids) : b s h, b s -> b", "another result than a loss for every target"},
      {"cross_entropy(x, ids) : b s h, b s -> b s h", "another result than a loss for every target"},
      {"lookup(one, table) : b, v h -> b s h", "makes 's', which no operand has"},
      {"lookup(ids, table) : b s, v h -> b h", "other rows than one entry of the table"},
      {"norm(x, gs) : b s h, s -> b s h", "a weight or a bias of another dim than the last one"},
      {"norm(x, g, gs) : b s h, h, s -> b s h", "a weight or a bias of another dim than the last one"},
      {"sum(x) : b s h -> b v", "makes 'v', which no operand has"},
      {"einsum(x, g) : b s h, h -> b s v", "makes 'v', which no operand has"},
      {"reshape(x) : b s h -> b s h v", "makes 'v', which no operand has"},
  };
  for (const auto& [op, expected] : mistakes) {
    const std::string message = message_of(leaves + "y = " + op + "\n");
    EXPECT_NE(message.find("test: line 13: y: "), std::string::npos) << message;
    EXPECT_NE(message.find(expected), std::string::npos) << message;
  }
  for (const std::string op : {"cross_entropy(x, ids) : b s h, b s -> s b", "norm(x, g) : b s h, h -> s b h",
                               "lookup(one, table) : b, v h -> b h", "reshape(x) : b s h -> (b s) h ; as v h"})
    EXPECT_EQ(message_of(leaves + "y = " + op + "\n").find("Its rule is like"), std::string::npos) << op;
}

TEST(ProgramText, MasksHaveTheirWindowAndNoOther) {
  const auto of = [](const std::string& mask) {
    return message_of(
        "weft_program 1 t\ndim b 2\ndim s 3\ndim k 12 unit 12\ndim o 4 unit 4\ninput x [b s k]\n"
        "y = attention(x) : b s k -> b s k ; as b s o ; heads 1 1 4 ; mask " +
        mask + "\n");
  };
  for (const std::string right : {"full", "causal", "sliding 1", "windowed 64"}) EXPECT_EQ(of(right), "") << right;
  const std::vector<std::array<std::string, 2>> mistakes = {
      {"sliding", "y: has a sliding mask with a window of 0 rows"},
      {"sliding 0", "'mask sliding 128'"},
      {"sliding -3", "y: has a sliding mask with a window of -3 rows"},
      {"windowed", "y: has a windowed mask with a window of 0 rows"},
      {"causal 5", "y: has a window of '5' rows, but a mask without windows"},
      {"causal 0", "y: has a window of '0' rows, but a mask without windows"},
      {"full 5", "y: has a window of '5' rows, but a mask without windows"},
      {"sliding x", "'x' is no whole number"},
      {"slidng 3", "'slidng' is no mask"},
  };
  for (const auto& [mask, expected] : mistakes) EXPECT_NE(of(mask).find(expected), std::string::npos) << of(mask);
}

TEST(ProgramText, ACustomOperatorNeedsARule) {
  const std::string message = message_of("weft_program 1 t\ndim b 2\ninput x [b]\ny = custom(x)\n");
  EXPECT_NE(message.find("line 4: y: is custom and declares no rule"), std::string::npos) << message;
  EXPECT_NE(message.find("; calls NAME'"), std::string::npos) << message;
}

TEST(ProgramText, AnOperatorThatReadsWhatComesLaterIsACycle) {
  Program program = *parse_program(kMlp, "test");
  program.operators[0].operands[0] = program.operators[4].result;
  const auto wrong = find_wrong(program);
  ASSERT_TRUE(wrong);
  EXPECT_NE(wrong->message().find("a cycle"), std::string::npos) << wrong->message();
}

TEST(Rules, ChoicesAreReadByDimOrByWord) {
  const Result<Program> program = parse_program(kMlp, "test");
  const Rule& rule = program->operators[1].rule;
  EXPECT_EQ(*parse_choice(rule, "f"), Choice::cut(*rule.find("f")));
  EXPECT_EQ(*parse_choice(rule, "cut h"), Choice::cut(*rule.find("h")));
  EXPECT_EQ(*parse_choice(rule, "same"), Choice::same());
  EXPECT_EQ(*parse_choice(rule, "through"), Choice::through(0));
  EXPECT_NE(parse_choice(rule, "q").error().message().find("cut f"), std::string::npos);
  // Adding a bias to a summand needs the bias as a summand: the gradient cannot be counted as often as there are ranks.
  const Rule bias = *parse_rule("b h, h -> b h");
  Rule added = bias;
  added.linear = {{0, 1}};
  EXPECT_EQ(states_of(added, Choice::through(0)).operands[1], AxisState::partial());
}

TEST(ProgramText, WhatOperatorsComputeIsReadAsItIsWritten) {
  const std::string text =
      "weft_program 1 p\ndim b 2\ndim s 3\ndim e 4\ndim k 12 unit 12\ndim o 4 unit 4\ninput x [b s e]\ninput q [b s "
      "k]\n"
      "r = softmax(x) : b s e -> b s e ; whole e ; top 2 normalized\n"
      "m = attention(q) : b s k -> b s k ; as b s o ; heads 1 1 4 ; drops 0.25\n"
      "c = custom(q) : b s k -> b s k ; epsilon 0.5 ; calls mine\n";
  const Result<Program> program = parse_program(text, "test");
  ASSERT_TRUE(program.ok()) << program.error().message();
  EXPECT_EQ(program->operators[0].calculation.top, 2);
  EXPECT_TRUE(program->operators[0].calculation.is_normalized);
  EXPECT_EQ(program->operators[1].attention.dropout, 0.25);
  EXPECT_EQ(program->operators[2].calculation.calls, "mine");
  EXPECT_EQ(*parse_program(program_text(*program), "again"), *program);
  // The largest of a row are found where all of it is.
  EXPECT_EQ(program->operators[0].rule.dims[2].kind, DimKind::kWhole);
  const std::string dims = "weft_program 1 p\ndim b 2\ninput x [b]\n";
  for (const std::string wrong : {"y = softmax(x) : b -> b ; top -1\n", "y = scale(x) : b -> b ; top 1\n",
                                  "y = scale(x) : b -> b ; calls mine\n", "y = softmax(x) : b -> b ; top 1 often\n"})
    EXPECT_FALSE(parse_program(dims + wrong, "test").ok()) << wrong;
}

// Only operators that are linear in something have a choice to pass summands through.
TEST(ProgramText, SetsOfLinearOperandsAreSaidOnceAndAreNotEmpty) {
  const auto message = [](const std::string& options) {
    return message_of("weft_program 1 p\ndim h 8\ninput x [h]\ny = custom(x, x) : h, h -> h ; calls f" + options);
  };
  EXPECT_EQ(message(" ; linear 0 ; linear 1 ; linear 1 0"), "");
  EXPECT_NE(message(" ; linear").find("y: is said to be linear, but not in which operands"), std::string::npos);
  EXPECT_NE(message(" ; linear 0 0").find("linear in '0 0', which names an operand twice"), std::string::npos);
  EXPECT_NE(message(" ; linear 0 1 ; linear 1 0").find("linear in '1 0' twice"), std::string::npos);
  EXPECT_NE(message(" ; linear 2").find("an operand that it does not have"), std::string::npos);
  EXPECT_NE(message(" ; linear -1").find("an operand that it does not have"), std::string::npos);
}

TEST(ProgramText, NumbersOfDimsAndTensorsAreLimited) {
  const auto lines = [](const std::string& word, const std::string& rest, size_t count) {
    std::string text = "weft_program 1 p\ndim h 4\ninput x [h]\n";
    for (size_t i = 0; i < count; ++i) text += word + " n" + std::to_string(i) + rest + "\n";
    return text + "y = scale(x) : h -> h\n";
  };
  EXPECT_EQ(message_of(lines("dim", " 2", ProgramBuilder::kMostDims - 1)), "");
  EXPECT_NE(message_of(lines("dim", " 2", ProgramBuilder::kMostDims)).find("is one dim more than 4096"),
            std::string::npos);
  EXPECT_EQ(message_of(lines("weight", " [h]", ProgramBuilder::kMostLeaves - 1)), "");
  EXPECT_NE(message_of(lines("weight", " [h]", ProgramBuilder::kMostLeaves))
                .find("is one input, data or weight more than 50000"),
            std::string::npos);
}

// Takes minutes where every operator goes through all others for each value.
TEST(ProgramText, ChecksThousandsOfOperatorsAndRepeats) {
  std::string text = "weft_program 1 p\ndim h 4\ninput x [h]\ndata d [h]\nweight w [h]\n", last = "x";
  for (int i = 0; i < 4000; ++i) {
    const std::string name = "r" + std::to_string(i);
    text += "repeat 2 " + last + "\n" + name + " = multiply(" + last + ", d) : h, h -> h\nend " + name + "\n";
    last = name;
  }
  for (int i = 0; i < 5000; ++i) {
    const std::string name = "s" + std::to_string(i);
    text += name + " = multiply(" + last + ", w) : h, h -> h\n";
    last = name;
  }
  EXPECT_EQ(message_of(text), "");
}

TEST(ProgramText, AWeightIsReadInOneRepeatWhicheverReaderComesFirst) {
  const auto message = [](const std::string& before, const std::string& behind) {
    return message_of("weft_program 1 p\ndim h 4\ninput x [h]\nweight w [h]\n" + before +
                      "repeat 2 a\nb = multiply(a, w) : h, h -> h\nend b\n" + behind);
  };
  EXPECT_EQ(message("a = scale(x) : h -> h\n", "c = scale(b) : h -> h\n"), "");
  EXPECT_NE(message("a = multiply(x, w) : h, h -> h\n", "").find("a: reads the weight 'w'"), std::string::npos);
  EXPECT_NE(message("a = scale(x) : h -> h\n", "c = multiply(b, w) : h, h -> h\n").find("b: reads the weight 'w'"),
            std::string::npos);
}

}  // namespace
}  // namespace weft
