#include "weft/program/operator_part.h"

#include <gtest/gtest.h>

#include "weft/program/program_text.h"

namespace weft {
namespace {

constexpr const char* kProgram = R"(weft_program 1 small
dim b 3
dim h 8
dim p 12 unit 2
dim f 6
input x [b h]
weight g [h]
normed = norm(x, g) : b h, h -> b h
weight w [p h]
up = einsum(normed, w) : b h, p h -> b p
act = elementwise(up) : b f -> b f ; as b f ; does silu
)";

Program small_program() {
  const Result<Program> program = parse_program(kProgram, "small.txt");
  EXPECT_TRUE(program.ok()) << program.error().message();
  return *program;
}

Choice choice(const Operator& op, const char* words) {
  return *parse_choice(op.rule, words);
}

TEST(OperatorPart, IsWhatTheBusiestRankHas) {
  const Program program = small_program();
  const AxisGrid two = *AxisGrid::create({{"tp", 2}}), four = *AxisGrid::create({{"tp", 4}});
  const Operator& up = program.operators[1];
  const OperatorPart whole = part_of(program, up, {Choice::same()}, two);
  EXPECT_EQ(whole.op, "einsum(rows, weight) : b h, p h -> b p");
  EXPECT_EQ(whole.parts, "3x8, 12x8 -> 3x12");
  EXPECT_EQ(part_of(program, up, {choice(up, "cut b")}, two).parts, "2x8, 12x8 -> 2x12");
  EXPECT_EQ(part_of(program, up, {choice(up, "cut h")}, two).parts, "3x4, 12x4 -> 3x12");
  // Six units among four ranks: two of them have two.
  EXPECT_EQ(part_of(program, up, {choice(up, "cut p")}, four).parts, "3x8, 4x8 -> 3x4");
  EXPECT_EQ(part_of(program, up, {choice(up, "through")}, two), whole);
}

TEST(OperatorPart, SaysWhatIsCutInside) {
  const Program program = small_program();
  const AxisGrid grid = *AxisGrid::create({{"tp", 2}});
  const Operator& norm = program.operators[0];
  EXPECT_EQ(part_of(program, norm, {choice(norm, "cut h")}, grid).inside, "h 2");
  EXPECT_EQ(part_of(program, norm, {choice(norm, "cut b")}, grid).inside, "");
}

TEST(OperatorPart, LengthsAreReadBack) {
  using Lengths = std::vector<std::vector<int64_t>>;
  EXPECT_EQ(lengths_in("3x8, 12x8 -> 3x12"), (Lengths{{3, 8}, {12, 8}, {3, 12}}));
  EXPECT_EQ(lengths_in("7 -> 1"), (Lengths{{7}, {1}}));
  for (const char* wrong : {"", "3x8", "3x, 2 -> 1", "3x8 -> 2 -> 1", "3 -> ", "3;4 -> 1", "-3 -> 1", "3 -> 4, 5"})
    EXPECT_FALSE(lengths_in(wrong)) << wrong;
}

TEST(OperatorCase, HasThePartsLengthsOrItsRanks) {
  const Program program = small_program();
  const Operator& act = program.operators[2];
  const OperatorCase cut = case_of(program, act, choice(act, "cut f"), 4);
  EXPECT_EQ(find_wrong(cut.program), std::nullopt);
  EXPECT_EQ(cut.ranks, 1);
  EXPECT_EQ(cut.choice, Choice::same());
  EXPECT_EQ(cut.program.num_elements(0), 3 * 4);
  EXPECT_EQ(cut.program.num_elements(1), 3 * 2);
  // By itself it has the part that it was made for.
  const AxisGrid one = *AxisGrid::create({{"tp", 1}});
  EXPECT_EQ(part_of(cut.program, cut.program.operators[0], {Choice::same()}, one), cut.part);

  const Operator& norm = program.operators[0];
  const OperatorCase inside = case_of(program, norm, choice(norm, "cut h"), 2);
  EXPECT_EQ(find_wrong(inside.program), std::nullopt);
  EXPECT_EQ(inside.ranks, 2);
  EXPECT_EQ(inside.choice, choice(norm, "cut h"));
  EXPECT_EQ(inside.program.num_elements(0), 3 * 8);
}

}  // namespace
}  // namespace weft
