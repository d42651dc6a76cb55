#include "weft/exchange/key_lines.h"

#include <gtest/gtest.h>

namespace weft {
namespace {

constexpr const char* kYaml =
    "# a file\n"
    "seed: 3\n"
    "model:\n"
    "  type: x\n"
    "  config:\n"
    "    type: y\n"
    "    - type: an item\n"
    "train:\n"
    "  type: z\n"
    "  type: again\n"
    "seed: 4\n";

TEST(KeyLines, AKeyIsFoundByItsPath) {
  const KeyLines lines(kYaml);
  EXPECT_EQ(lines.line_of({"model", "type"}), 4U);
  EXPECT_EQ(lines.line_of({"model", "config", "type"}), 6U);
  EXPECT_EQ(lines.line_of({"config", "type"}), 6U);
  EXPECT_EQ(lines.line_of({"train", "config"}), 0U) << "of another section";
  EXPECT_EQ(lines.line_of({"nothing"}), 0U);
  EXPECT_EQ(lines.line_of({}), 0U);
}

TEST(KeyLines, OfAKeyThatStandsTwiceTheLastOneCounts) {
  const KeyLines lines(kYaml);
  EXPECT_EQ(lines.line_of({"seed"}), 11U);
  EXPECT_EQ(lines.line_of({"train", "type"}), 10U);
}

TEST(KeyLines, QuotesAndSpacesAroundAKeyAreNotPartOfIt) {
  const KeyLines lines("{\n  \"a\": {\n    \"b\" : 1,\n    \"c\": [\n      2\n    ]\n  }\n}\n'd': 5\n");
  EXPECT_EQ(lines.line_of({"a", "b"}), 3U);
  EXPECT_EQ(lines.line_of({"a", "c"}), 4U);
  EXPECT_EQ(lines.line_of({"d"}), 9U);
}

TEST(KeyLines, LinesWithoutAKeyAreNone) {
  const KeyLines lines(":\n  : 1\n\"\": 2\n-\n\n   \nword\na: 1");
  EXPECT_EQ(lines.line_of({""}), 0U);
  EXPECT_EQ(lines.line_of({"word"}), 0U);
  EXPECT_EQ(lines.line_of({"a"}), 8U);
}

}  // namespace
}  // namespace weft
