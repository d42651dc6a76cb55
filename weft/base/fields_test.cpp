#include "weft/base/fields.h"

#include <gtest/gtest.h>

namespace weft {
namespace {

Document document(std::string_view text) {
  return *parse_document(text, "file.yaml", Syntax::kYaml);
}

/// Runs a reader over the text and returns the message of the first finding.
template <typename F>
std::string finding(std::string_view text, F read) {
  const Document parsed = document(text);
  Findings findings(parsed.source);
  Fields fields(parsed, findings);
  read(fields);
  return findings.first() ? findings.first()->message() : "";
}

TEST(Fields, ReadsWhatIsThereAndFallsBackOnWhatIsNot) {
  EXPECT_EQ(finding("a: 3\nb: 1.5\nc: true\nd: word\ne: [1, 2]\nf: {g: 4}\nh: 1e3\n",
                    [](Fields& f) {
                      EXPECT_EQ(f.integer("a", {1, 5}), 3);
                      EXPECT_EQ(f.number("b", {0, 2}), 1.5);
                      EXPECT_TRUE(f.flag_or("c", false));
                      EXPECT_EQ(f.text("d"), "word");
                      EXPECT_EQ(f.integers_or_empty("e", {0, 9}), (std::vector<int64_t>{1, 2}));
                      EXPECT_EQ(f.object("f").integer("g", {0, 9}), 4);
                      EXPECT_EQ(f.integer("h", {0, 1000}), 1000);
                      EXPECT_EQ(f.integer_or("nothing", 7, {0, 9}), 7);
                      EXPECT_FALSE(f.has("nothing"));
                      f.reject_unknown();
                    }),
            "");
}

TEST(Fields, FindingsNameThePathWhatWasFoundAndWhatIsAllowed) {
  const auto integer = [](Fields& f) { f.object("outer").integer("depth", {1, 100}); };
  EXPECT_EQ(finding("outer: {depth: 0}", integer),
            "file.yaml: outer.depth: is 0, a whole number from 1 to 100 is needed");
  EXPECT_EQ(finding("outer: {depth: -5}", integer),
            "file.yaml: outer.depth: is -5, a whole number from 1 to 100 is needed");
  EXPECT_EQ(finding("outer: {depth: 18446744073709551615}", integer),
            "file.yaml: outer.depth: is 18446744073709551615, a whole number from 1 to 100 is needed");
  EXPECT_EQ(finding("outer: {depth: 1.5}", integer),
            "file.yaml: outer.depth: is the number 1.5, a whole number from 1 to 100 is needed");
  EXPECT_EQ(finding("outer: {depth: '3'}", integer),
            "file.yaml: outer.depth: is the text '3', a whole number from 1 to 100 is needed");
  EXPECT_EQ(finding("outer: {depht: 3}", integer),
            "file.yaml: outer.depth: is missing. Is 'depht' meant to be it? Call it depth.");
  const auto rate = [](Fields& f) { f.object("optimizer").number("learning_rate", {0, 1}); };
  EXPECT_EQ(finding("optimizer: {lr: 0.1}", rate),
            "file.yaml: optimizer.learning_rate: is missing. Is 'lr' meant to be it? Call it learning_rate.");
  EXPECT_EQ(finding("optimizer: {beta1: 0.1}", rate), "file.yaml: optimizer.learning_rate: is missing. Add it.");
  EXPECT_EQ(finding("outer: {depth: null}", integer), "file.yaml: outer.depth: is null, a value is needed");
  EXPECT_EQ(finding("outer: [1]", integer), "file.yaml: outer: is a list, a mapping of fields is needed");
  EXPECT_EQ(finding("[1]", integer),
            "file.yaml: is a list, a mapping of fields is needed. Check that this is the file you meant.");
}

TEST(Fields, TheEndsOfARangeAreAllowedAndNothingBeyond) {
  const auto integer = [](Fields& f) { f.integer("depth", {1, 100}); };
  const auto number = [](Fields& f) { f.number("depth", {1, 100}); };
  for (const char* inside : {"depth: 1", "depth: 100", "depth: 1.0", "depth: 100.0"}) {
    EXPECT_EQ(finding(inside, integer), "") << inside;
    EXPECT_EQ(finding(inside, number), "") << inside;
  }
  for (const char* outside : {"depth: 0", "depth: 101", "depth: 0.0", "depth: 101.0"}) {
    EXPECT_NE(finding(outside, integer), "") << outside;
    EXPECT_NE(finding(outside, number), "") << outside;
  }
}

// 2^63 and 2^60 are what the ends become as doubles, and are beyond them.
TEST(Fields, WholeNumbersAreComparedAsIntegers) {
  const auto any = [](Fields& f) { f.integer("n", {0, INT64_MAX}); };
  EXPECT_NE(finding("n: 9223372036854775808.0", any).find("n: is the number 9.223372036854776e+18, a whole"),
            std::string::npos);
  EXPECT_NE(finding("n: 1e300", any), "");
  EXPECT_EQ(finding("n: 9223372036854774784.0", any), "");
  const auto most = [](Fields& f) { f.integer("n", {0, (int64_t{1} << 60) - 1}); };
  EXPECT_NE(finding("n: 1152921504606846976.0", most), "");
  EXPECT_EQ(whole_number(Json(UINT64_MAX), {-5, 5}), std::nullopt);
  EXPECT_EQ(whole_number(Json(-5), {-5, 5}), -5);
  EXPECT_EQ(whole_number(Json(4.5), {-5, 5}), std::nullopt);
  EXPECT_EQ(whole_number(Json("4"), {-5, 5}), std::nullopt);
}

TEST(Fields, NumbersMustBeFinite) {
  const auto number = [](Fields& f) { f.number("x", {0, 10}); };
  EXPECT_EQ(finding("x: .nan", number), "file.yaml: x: is the number nan, a number from 0 to 10 is needed");
  EXPECT_EQ(finding("x: .inf", number), "file.yaml: x: is the number inf, a number from 0 to 10 is needed");
  EXPECT_EQ(finding("x: 1e999", number), "file.yaml: x: is the number inf, a number from 0 to 10 is needed");
}

TEST(Fields, UnknownKeysAreFoundWithAGuess) {
  EXPECT_EQ(finding("nodes: 1\nndoes: 2\n",
                    [](Fields& f) {
                      f.integer("nodes", {1, 9});
                      f.reject_unknown();
                    }),
            "file.yaml: ndoes: is not a known field; known are nodes. Correct or remove it. Did you mean 'nodes'?");
}

TEST(Fields, ChoicesListWhatIsAllowed) {
  const std::vector<std::string> colours = {"red", "green"};
  EXPECT_EQ(finding("c: gren", [&](Fields& f) { f.choice("c", colours); }),
            "file.yaml: c: is the text 'gren', red or green is needed. Did you mean 'green'?");
  EXPECT_EQ(finding("c: 3", [&](Fields& f) { f.choice("c", colours); }),
            "file.yaml: c: is the number 3, red or green is needed");
  EXPECT_EQ(finding("c: green", [&](Fields& f) { EXPECT_EQ(f.choice("c", colours), 1u); }), "");
}

TEST(Fields, NullCountsAsMissingInOthersFilesAndIsRefusedInOurs) {
  EXPECT_EQ(finding("a:\n", [](Fields& f) { EXPECT_EQ(f.integer_or("a", 7, {0, 9}), 7); }), "");
  EXPECT_EQ(finding("a:\n",
                    [](Fields& f) {
                      EXPECT_TRUE(f.is_null("a"));
                      f.integer_or("a", 7, {0, 9});
                      f.reject_unknown();
                    }),
            "file.yaml: a: has no value. Give one, or remove the field.");
}

TEST(Fields, ListsOfObjectsNameTheEntry) {
  const auto read = [](Fields& f) {
    for (Fields& object : f.objects("list")) {
      object.integer("a", {0, 9});
      object.reject_unknown();
    }
  };
  EXPECT_EQ(finding("list: [{a: 1}, {a: 2}]", read), "");
  EXPECT_EQ(finding("list: []", read), "");
  EXPECT_EQ(finding("list: [{a: 1}, {a: 12}]", read),
            "file.yaml: list[1].a: is 12, a whole number from 0 to 9 is needed");
  EXPECT_EQ(finding("list: {a: 1}", read), "file.yaml: list: is a mapping, a list of mappings is needed");
  EXPECT_EQ(finding("list: [{a: 1}, 2]", read),
            "file.yaml: list: is a list of other things, a list of mappings is needed");
  EXPECT_EQ(finding("b: 1", read), "file.yaml: list: is missing. Add it.");
}

TEST(Fields, OnlyTheFirstFindingIsKept) {
  EXPECT_EQ(finding("a: x\nb: y\n",
                    [](Fields& f) {
                      f.integer("a", {0, 1});
                      f.integer("b", {0, 1});
                    }),
            "file.yaml: a: is the text 'x', a whole number from 0 to 1 is needed");
}

TEST(Fields, NamesAreOfOneLineAndWithoutControlCharacters) {
  const auto name = [](Fields& f) { f.name("name"); };
  EXPECT_EQ(finding("name: \"\\u4f60 a-b\"", name), "");
  EXPECT_EQ(finding("name: \"a\\nnodes: 3\"", name),
            "file.yaml: name: is 'a\\x0anodes: 3', a text of one line without control characters is needed");
  EXPECT_NE(finding("name: \"a\\e[31m\"", name), "");
  EXPECT_EQ(finding("a: 1", name), "file.yaml: name: is missing. Add it.");
  EXPECT_EQ(finding("a: 1", [](Fields& f) { EXPECT_EQ(f.name_or("name", "x"), "x"); }), "");
}

TEST(Fields, AnUnknownKeyWithoutLettersIsStillNamed) {
  const std::string message = finding("{\"\": 1, a: 2}", [](Fields& f) {
    f.raw("a");
    f.reject_unknown();
  });
  EXPECT_EQ(message.find("file.yaml: '': is not a known field; known are a"), 0u) << message;
}

}  // namespace
}  // namespace weft
