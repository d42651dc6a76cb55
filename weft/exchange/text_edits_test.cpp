#include <gtest/gtest.h>

#include "weft/exchange/json_edit.h"
#include "weft/exchange/script_edit.h"
#include "weft/exchange/yaml_edit.h"

namespace weft {
namespace {

TEST(YamlEdit, KeepsCommentsAndTheWayThatTruthIsWritten) {
  EXPECT_EQ(with_yaml_value("a:\n  b: False   # why\n  c: 2\n", {"a", "b"}, "true"), "a:\n  b: True   # why\n  c: 2\n");
  EXPECT_EQ(with_yaml_value("'a':\n  \"b\": [1, 2]\n", {"a", "b"}, "[3]"), "'a':\n  \"b\": [3]\n");
  EXPECT_EQ(with_yaml_value("a:\n  b:\n", {"a", "b"}, "1"), "a:\n  b: 1\n");
  EXPECT_EQ(with_yaml_value("a: &d 1  # x\nb: *d\n", {"a"}, "2"), "a: &d 2  # x\nb: *d\n");
  EXPECT_EQ(with_yaml_value("a: &d\n  c: 1\nb: *d\n", {"a"}, "2"), std::nullopt);
}

TEST(YamlEdit, AddsToTheEndOfASectionOrTheFile) {
  EXPECT_EQ(with_yaml_value("a:\n    b: 1\n\n# c\nd: 2\n", {"a", "x", "y"}, "3"),
            "a:\n    b: 1\n    x:\n      y: 3\n\n# c\nd: 2\n");
  EXPECT_EQ(with_yaml_value("a: 1\n", {"x", "y"}, "3"), "a: 1\nx:\n  y: 3\n");
  EXPECT_EQ(with_yaml_value("a: {b: 1, c: 2}\n", {"a", "c"}, "3"), "a: {b: 1, c: 3}\n");
  EXPECT_EQ(with_yaml_value("a: {b: 1}\n", {"a", "c"}, "3"), "a: {b: 1, c: 3}\n");
  EXPECT_EQ(with_yaml_value("a: &a\n  b: 1\nd: *a\n", {"a", "c"}, "3"), "a: &a\n  b: 1\n  c: 3\nd: *a\n");
}

TEST(YamlEdit, LeavesAloneWhatIsNoSingleLine) {
  EXPECT_EQ(with_yaml_value("a:\n  - 1\n", {"a"}, "3"), std::nullopt);
  EXPECT_EQ(with_yaml_value("a:\n- b: 1\n- c: 2\n", {"a", "b"}, "3"), std::nullopt);
  EXPECT_EQ(with_yaml_value("a: [1,\n  2]\n", {"a"}, "3"), std::nullopt);
  EXPECT_EQ(with_yaml_value("a: *b\n", {"a"}, "3"), std::nullopt);
  EXPECT_EQ(with_yaml_value("a: *b\n", {"a", "c"}, "3"), std::nullopt);
  // Lines of a text are no keys.
  EXPECT_EQ(with_yaml_value("t: |\n  a: 1\na: 2\n", {"a"}, "3"), "t: |\n  a: 1\na: 3\n");
  EXPECT_EQ(without_yaml_value("a:\n  b: 1\n  c: 2\n", {"a", "b"}), "a:\n  c: 2\n");
  EXPECT_EQ(without_yaml_value("a:\n  b: 1\n", {"a"}), std::nullopt);
}

TEST(JsonEdit, ChangesAddsAndRemovesOneMember) {
  const std::string text = "{\n  \"a\": {\"b\": [1, {\"c\": 2}], \"d\": \"}\"},\n  \"e\": 3\n}\n";
  EXPECT_EQ(with_json_value(text, {"a", "b"}, "4"), "{\n  \"a\": {\"b\": 4, \"d\": \"}\"},\n  \"e\": 3\n}\n");
  EXPECT_EQ(with_json_value(text, {"x", "y"}, "4"),
            "{\n  \"x\": {\"y\": 4},\n  \"a\": {\"b\": [1, {\"c\": 2}], \"d\": \"}\"},\n  \"e\": 3\n}\n");
  EXPECT_EQ(with_json_value("{}", {"x"}, "4"), "{\"x\": 4}");
  EXPECT_EQ(with_json_value(text, {"e", "y"}, "4"), std::nullopt);
  EXPECT_EQ(without_json_value(text, {"e"}), "{\n  \"a\": {\"b\": [1, {\"c\": 2}], \"d\": \"}\"}\n}\n");
  EXPECT_EQ(without_json_value(text, {"a", "b"}), "{\n  \"a\": {\"d\": \"}\"},\n  \"e\": 3\n}\n");
  EXPECT_EQ(without_json_value("{\"a\": 1}", {"a"}), "{}");
  EXPECT_EQ(without_json_value(text, {"z"}), std::nullopt);
}

TEST(ScriptEdit, AValueChangesWhereItIsWrittenOrBehindItsKey) {
  const std::string script = "TP=${TP:-4}  # 4 of 8\nrun --tp-size $TP --batch $((8 / TP * 2)) --flag --rate=1\n";
  EXPECT_EQ(with_value_in_line(script, 1, "tp-size", "4", "2"),
            "TP=${TP:-2}  # 4 of 8\nrun --tp-size $TP --batch $((8 / TP * 2)) --flag --rate=1\n");
  EXPECT_EQ(with_argument(script, "tp-size", "2"),
            "TP=${TP:-4}  # 4 of 8\nrun --tp-size 2 --batch $((8 / TP * 2)) --flag --rate=1\n");
  EXPECT_EQ(with_argument(script, "batch", "16"),
            "TP=${TP:-4}  # 4 of 8\nrun --tp-size $TP --batch 16 --flag --rate=1\n");
  EXPECT_EQ(with_argument(script, "rate", "2"),
            "TP=${TP:-4}  # 4 of 8\nrun --tp-size $TP --batch $((8 / TP * 2)) --flag --rate=2\n");
  EXPECT_EQ(with_argument(script, "flag", "2"), std::nullopt);
  EXPECT_EQ(with_argument(script, "size", "2"), std::nullopt);
  EXPECT_EQ(with_argument("run --a_b 1\n# run --a_b 2\n", "a-b", "3"), "run --a_b 3\n# run --a_b 2\n");
}

TEST(ScriptEdit, ALongLineOfCommentedKeysIsLookedAtOnce) {
  std::string line = "run --tp 1 # ";
  for (int i = 0; i < 500'000; ++i) line += "--tp 2 ";  // 10^12 letters, if each looked for the comment itself
  const auto changed = with_argument(line, "tp", "4");
  ASSERT_TRUE(changed.has_value());
  EXPECT_EQ(changed->substr(0, 20), "run --tp 4 # --tp 2 ");
  EXPECT_EQ(with_argument("a --tp 1 --tp 2 # --tp 3\n# --tp 4\nb#--tp 5 # --tp 6", "tp", "9"),
            "a --tp 1 --tp 2 # --tp 3\n# --tp 4\nb#--tp 9 # --tp 6");
  EXPECT_EQ(with_argument("a --tp 1 --tp 2 # --tp 3\n# --tp 4", "tp", "9"), "a --tp 1 --tp 9 # --tp 3\n# --tp 4");
}

TEST(ScriptEdit, ArgumentsAreAddedAndTakenOut) {
  EXPECT_EQ(with_new_argument("run --a 1 \\\n  --b 2\n", "b", "c", ""), "run --a 1 \\\n  --c --b 2\n");
  EXPECT_EQ(without_argument("run --a 1 --b 2 --c\n", "b", true), "run --a 1 --c\n");
  EXPECT_EQ(without_argument("run --a 1 --c\n", "c", false), "run --a 1\n");
  EXPECT_EQ(without_argument("X=\"\n  --c --d 1\n\"\n", "c", false), "X=\"\n  --d 1\n\"\n");
  EXPECT_EQ(without_argument("X=\"--d ${D:-1 2}\"\n", "d", true), "X=\"\"\n");
  EXPECT_EQ(without_argument("run --a 1\n", "b", true), std::nullopt);
}

}  // namespace
}  // namespace weft
