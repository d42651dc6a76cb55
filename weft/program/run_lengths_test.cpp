#include "weft/program/run_lengths.h"

#include <gtest/gtest.h>

#include "weft/program/program_text.h"

namespace weft {
namespace {

Program some_program() {
  return *parse_program(
      "weft_program 1 p\ndim b 2\ndim s 4 unit 2\ndim t 2\ndim r 8 unit 4\ndim h 3\ninput x [b s h]\n"
      "m = custom(x) : b s h -> b s h ; as b t h ; whole h\n"
      "y = reshape(x) : b s h -> (b s) h ; as r h\n",
      "test");
}

int64_t length_of(const Program& program, const RunLengths& lengths, const char* dim) {
  return lengths[*program.find_dim(dim)].length;
}

TEST(RunLengths, TiedDimsFollow) {
  const Program program = some_program();
  const auto lengths = changed_lengths(program, {{"b", 3}, {"s", 10}});
  ASSERT_TRUE(lengths.ok()) << lengths.error().message();
  EXPECT_EQ(length_of(program, *lengths, "t"), 5);
  EXPECT_EQ(length_of(program, *lengths, "r"), 30);
  EXPECT_EQ((*lengths)[*program.find_dim("r")].unit, 10);
  EXPECT_EQ(length_of(program, *lengths, "h"), 3);
  EXPECT_EQ(*changed_lengths(program, {}), declared_lengths(program));
}

TEST(RunLengths, WhatDoesNotFitIsNamed) {
  const Program program = some_program();
  const auto message = [&](const std::vector<std::pair<std::string, int64_t>>& changes) {
    const auto lengths = changed_lengths(program, changes);
    return lengths.ok() ? std::string() : lengths.error().message();
  };
  EXPECT_NE(message({{"q", 3}}).find("is no dim of p"), std::string::npos) << message({{"q", 3}});
  EXPECT_NE(message({{"s", 3}}).find("in units of 2"), std::string::npos) << message({{"s", 3}});
  EXPECT_NE(message({{"s", 6}, {"t", 2}}).find("'t' would have 2 elements and 3"), std::string::npos)
      << message({{"s", 6}, {"t", 2}});
}

TEST(RunLengths, LengthsThatNoTensorHasAreRefused) {
  const Program program = some_program();
  const auto lengths = changed_lengths(program, {{"b", int64_t{1} << 40}, {"s", int64_t{1} << 40}});
  ASSERT_FALSE(lengths.ok());
  EXPECT_NE(lengths.error().message().find("y: the dim 'r' would have more than 9,007,199,254,740,992 elements"),
            std::string::npos)
      << lengths.error().message();
}

}  // namespace
}  // namespace weft
