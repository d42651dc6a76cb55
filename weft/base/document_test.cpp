#include "weft/base/document.h"

#include <chrono>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <unistd.h>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "weft/base/file.h"
#include "weft/base/foreign_document.h"

namespace weft {
namespace {

Result<Document> json(std::string_view text, const DocumentLimits& limits = {}) {
  return parse_document(text, "test.json", Syntax::kJson, limits);
}
Result<Document> yaml(std::string_view text, const DocumentLimits& limits = {}) {
  return parse_document(text, "test.yaml", Syntax::kYaml, limits);
}

std::string message(const Result<Document>& result) {
  return result ? "no error" : result.error().message();
}

TEST(Document, YamlThatIsNotUtf8IsRefusedWithThePlace) {
  for (const std::string bad : {"\x80", "\xc1\x80", "\xe4\xbd", "\xed\xa0\x80", "\xf5\x80\x80\x80", "\xe0\x80\x80"}) {
    const auto document = parse_document("a: b" + bad, "file", Syntax::kYaml);
    ASSERT_FALSE(document.ok());
    EXPECT_NE(document.error().message().find("is not UTF-8: byte 5"), std::string::npos) << document.error().message();
  }
  EXPECT_EQ((*parse_document("a: \xe4\xbd\xa0\xf0\x9f\x98\x80", "file", Syntax::kYaml)).root["a"],
            "\xe4\xbd\xa0\xf0\x9f\x98\x80");
}

TEST(Document, EscapesOfYamlBecomeTheirCharacters) {
  const std::string text = R"(a: "\x85\N\N\_\L\xe9 \_")";
  EXPECT_EQ((*parse_document(text, "file", Syntax::kYaml)).root["a"], "\u0085\u0085\u0085\u00a0\u2028\u00e9 \u00a0");
  const auto key = parse_document(R"({"\N": 1})", "file", Syntax::kYaml);
  ASSERT_TRUE(key.ok()) << message(key);
  EXPECT_EQ(key->root.dump(), "{\"\u0085\":1}");
}

TEST(Document, YamlWithAControlCharacterIsRefusedWithThePlace) {
  using namespace std::string_literals;
  for (const std::string& bad : {"\0"s, "\x01"s, "\x1b"s}) {
    for (const std::string& before : {"a: b"s, "a: {b'"s, "a: \"b"s, "# a"s}) {
      EXPECT_NE(message(parse_document(before + bad + "c", "file", Syntax::kYaml))
                    .find(fmt::format("byte {} is a control character", before.size() + 1)),
                std::string::npos);
    }
  }
  EXPECT_EQ((*parse_document("a:\tb\r\nc: \"\\0\"\r\n", "file", Syntax::kYaml)).root["c"], "\0"s);
}

TEST(Document, JsonAndYamlOfTheSameContentAreEqual) {
  const auto a = json(R"({"z": 1, "a": [true, null, -2, 1.5, "text"], "empty": {}, "list": []})");
  const auto b = yaml("z: 1\na: [true, null, -2, 1.5, text]\nempty: {}\nlist: []\n");
  ASSERT_TRUE(a.ok()) << message(a);
  ASSERT_TRUE(b.ok()) << message(b);
  EXPECT_EQ(a->root, b->root);
  EXPECT_EQ(a->root.begin().key(), "z") << "keys keep their order";
}

TEST(Document, YamlScalarsFollowTheCoreSchema) {
  const auto document = yaml(
      "int: 42\nplus: +7\nhex: 0x1F\nnegative: -3\nfloat: 1e3\nquoted: \"42\"\nsingle: '1.5'\nyes: yes\n"
      "tilde: ~\nnothing:\ninf: -.inf\nnan: .nan\nbig: 18446744073709551615\nversion: 1.2.3\nword: infinity\n");
  ASSERT_TRUE(document.ok()) << message(document);
  const Json& root = document->root;
  EXPECT_EQ(root["int"], 42);
  EXPECT_EQ(root["plus"], 7);
  EXPECT_EQ(root["hex"], 31);
  EXPECT_EQ(root["negative"], -3);
  EXPECT_EQ(root["float"], 1000.0);
  EXPECT_EQ(root["quoted"], "42");
  EXPECT_EQ(root["single"], "1.5");
  EXPECT_EQ(root["yes"], "yes") << "YAML 1.2: only true and false are booleans";
  EXPECT_TRUE(root["tilde"].is_null());
  EXPECT_TRUE(root["nothing"].is_null());
  EXPECT_EQ(root["inf"].get<double>(), -HUGE_VAL);
  EXPECT_TRUE(std::isnan(root["nan"].get<double>()));
  EXPECT_EQ(root["big"].get<uint64_t>(), UINT64_MAX);
  EXPECT_EQ(root["version"], "1.2.3");
  EXPECT_EQ(root["word"], "infinity");
}

TEST(Document, ANumberOfYamlHasOneSign) {
  for (const char* text : {"+-1", "0x-1", "+-.inf", "+-1.5", "-+1", "--1", "0x+1"})
    EXPECT_EQ(yaml(fmt::format("a: {}\n", text))->root["a"], text);
  EXPECT_EQ(yaml("a: 0x7fffffffffffffff\n")->root["a"], INT64_MAX);
}

TEST(Document, TruncatedTextSaysWhere) {
  const auto a = json("{\n \"depth\": 32,\n \"heads\": ");
  ASSERT_FALSE(a.ok());
  EXPECT_NE(message(a).find("test.json: is not valid JSON: the text ends in line 3"), std::string::npos) << message(a);
  const auto b = yaml("a: [1, 2\n");
  ASSERT_FALSE(b.ok());
  EXPECT_NE(message(b).find("is not valid YAML: line"), std::string::npos) << message(b);
}

TEST(Document, WordsOfTheParserInsideOfTheTextAreNoMessage) {
  for (const char* words : {"unexpected end of input", "missing closing quote", "; expected a plum"}) {
    const std::string text = message(json(fmt::format("{{\"a\": \"{}\" x}}", words)));
    EXPECT_EQ(text.find("the text ends"), std::string::npos) << text;
    EXPECT_NE(text.find("at line 1, column"), std::string::npos) << text;
    EXPECT_EQ(text.find("plum"), std::string::npos) << text;
  }
}

TEST(Document, AZeroByteDoesNotHideWhatFollowsIt) {
  using namespace std::string_view_literals;
  EXPECT_EQ(message(json("{} \0 rest"sv)),
            "test.json: is not valid JSON: it holds a zero byte. Check that the file is complete and is JSON.");
  EXPECT_EQ(message(json(R"({"a": "\u0000"})"sv)), "no error");
}

TEST(Document, DuplicateKeysAreRefusedAndLocated) {
  EXPECT_EQ(message(json(R"({"a": {"b": 1, "b": 2}})")), "test.json: a.b: has the key 'b' twice");
  EXPECT_EQ(message(json(R"({"a": {"b": 1}, "c": 2, "a": 3})")), "test.json: a: has the key 'a' twice");
  EXPECT_FALSE(yaml("a: 1\na: 2\n").ok());
}

TEST(Document, RepeatedKeysOfOtherProgramsHaveTheirLastValuesInTheFirstPlaces) {
  std::vector<std::string> repeated;
  const auto document = parse_foreign_document(R"({"a": {"x": 1}, "b": 2, "a": 3, "c": 4, "b": [5, {"d": 6, "d": 7}]})",
                                               "test.json", Syntax::kJson, {}, &repeated);
  ASSERT_TRUE(document.ok()) << message(document);
  EXPECT_EQ(document->root.dump(), R"({"a":3,"b":[5,{"d":7}],"c":4})");
  EXPECT_EQ(repeated, (std::vector<std::string>{"a", "b", "b[1].d"}));
}

TEST(Document, RepeatedKeysTakeNoLongerTheMoreThereAre) {
  std::string text = "{";
  constexpr int kKeys = 60'000;
  for (int i = 0; i < kKeys; ++i) text += fmt::format("\"k{0}\":0,\"k{0}\":{0},", i);
  text.back() = '}';
  std::vector<std::string> repeated;
  const auto start = std::chrono::steady_clock::now();
  const auto document = parse_foreign_document(text, "test.json", Syntax::kJson, {}, &repeated);
  // A search through all earlier keys for each took half a minute.
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(5));
  ASSERT_TRUE(document.ok()) << message(document);
  EXPECT_EQ(repeated.size(), static_cast<size_t>(kKeys));
  EXPECT_EQ(document->root.size(), static_cast<size_t>(kKeys));
  EXPECT_EQ(std::prev(document->root.end()).value(), kKeys - 1);
}

TEST(Document, AnchorsInsideOfAnchorsStandForTheirOwnPart) {
  const auto document = parse_foreign_document(
      "a: &a {b: &b [1, &c 2], d: &d x}\ne: [*b, *c, *d]\nf: *a\ng: &g 3\nh: *g\n", "test.yaml", Syntax::kYaml);
  ASSERT_TRUE(document.ok()) << message(document);
  EXPECT_EQ(document->root.dump(),
            R"({"a":{"b":[1,2],"d":"x"},"e":[[1,2],2,"x"],"f":{"b":[1,2],"d":"x"},"g":3,"h":3})");
  EXPECT_NE(message(parse_foreign_document("a: &a [*a]\n", "test.yaml", Syntax::kYaml)).find("its own anchor"),
            std::string::npos);
}

TEST(Document, TagsThatOtherProgramsGiveAMeaningAreRefused) {
  EXPECT_NE(message(yaml("name: !include foo\n")).find("line 1: the tag !include is not read"), std::string::npos);
  EXPECT_FALSE(yaml("name: !list [1]\n").ok());
  EXPECT_EQ(yaml("name: ! foo\n")->root["name"], "foo");
  EXPECT_EQ(yaml("name: !!str 5\n")->root["name"], "5");
}

TEST(Document, HugeNestingIsRefusedQuicklyInBothSyntaxes) {
  const std::string brackets = std::string(100'000, '[') + std::string(100'000, ']');
  std::string braces;
  for (int i = 0; i < 100'000; ++i) braces += "{\"a\": ";
  braces += "1" + std::string(100'000, '}');
  std::string indented;
  for (int i = 0; i < 2'000; ++i) indented += std::string(static_cast<size_t>(i), ' ') + "a:\n";
  for (const auto& result : {json(brackets), json(braces), yaml(brackets), yaml(braces), yaml(indented)}) {
    ASSERT_FALSE(result.ok());
    EXPECT_NE(message(result).find("nested more than 64 levels"), std::string::npos) << message(result).substr(0, 300);
    EXPECT_LT(message(result).size(), 300u);
  }
  EXPECT_FALSE(json(std::string(100'000, '[')).ok());
  EXPECT_FALSE(yaml(std::string(100'000, '[')).ok());
}

TEST(Document, OverflowAndNanAreRefused) {
  EXPECT_NE(message(json("{\"a\": {\"b\": 1e999}}")).find("test.json: a.b: is not valid JSON"), std::string::npos);
  EXPECT_NE(message(json("{\"a\": NaN}")).find("test.json: a: is not valid JSON"), std::string::npos);
  EXPECT_EQ(yaml("a: 1e-999")->root["a"], 0.0) << "too small is not too large";
  const auto infinite = yaml("a: 1e999");
  ASSERT_TRUE(infinite.ok());
  EXPECT_TRUE(std::isinf(infinite->root["a"].get<double>())) << "left to the field's range";
}

TEST(Document, LimitsHoldForBytesAndValues) {
  EXPECT_NE(message(json("[1,2,3]", {.max_bytes = 4})).find("larger than the 4 B"), std::string::npos);
  EXPECT_NE(message(json("[1,2,3,4]", {.max_values = 3})).find("more than 3 values"), std::string::npos);
  EXPECT_NE(message(yaml("[1,2,3,4]", {.max_values = 3})).find("more than 3 values"), std::string::npos);
}

TEST(Document, WhatYamlAllowsAndWeftDoesNotIsNamed) {
  EXPECT_NE(message(yaml("a: &x 1\nb: *x\n")).find("line 2: aliases"), std::string::npos);
  EXPECT_NE(message(yaml("[1, 2]: 3\n")).find("line 1: a list or mapping stands where a key is expected"),
            std::string::npos);
  EXPECT_NE(message(yaml("a: 1\n---\nb: 2\n")).find("more than one YAML document"), std::string::npos);
  EXPECT_NE(message(yaml("")).find("the file is empty"), std::string::npos);
  EXPECT_NE(message(json("")).find("not valid JSON"), std::string::npos);
  EXPECT_TRUE(yaml("a: 1\n...\n").ok());
  EXPECT_TRUE(yaml("---\na: 1\n").ok());
}

TEST(Document, SyntaxComesFromTheNameElseFromTheFirstCharacter) {
  EXPECT_EQ(syntax_of("x.json", "a: 1"), Syntax::kJson);
  EXPECT_EQ(syntax_of("x.yml", "{}"), Syntax::kYaml);
  EXPECT_EQ(syntax_of("/dev/stdin", " \n{\"a\": 1}"), Syntax::kJson);
  EXPECT_EQ(syntax_of("x", "a: 1"), Syntax::kYaml);
}

TEST(File, MissingFoldersAndTooLargeFilesAreNamed) {
  const auto folder = std::filesystem::temp_directory_path() / ("weft_file_test_" + std::to_string(::getpid()));
  std::filesystem::create_directories(folder);
  EXPECT_NE(read_file(folder / "none", 10).error().message().find("none: cannot be read: No such file"),
            std::string::npos);
  EXPECT_NE(read_file(folder, 10).error().message().find("is a folder"), std::string::npos);
  std::ofstream(folder / "full") << "0123456789";
  EXPECT_EQ(*read_file(folder / "full", 10), "0123456789");
  EXPECT_NE(read_file(folder / "full", 9).error().message().find("larger than the 9 B"), std::string::npos);
  EXPECT_NE(read_file("/dev/zero", 1 << 20).error().message().find("larger than"), std::string::npos);
  EXPECT_FALSE(write_file(folder / "new", "abc"));
  EXPECT_EQ(*read_file(folder / "new", 10), "abc");
  EXPECT_FALSE(write_file(folder / "new", "defg"));
  EXPECT_EQ(*read_file(folder / "new", 10), "defg");
  EXPECT_NE(write_file(folder / "none" / "x", "abc")->message().find("x: cannot be written: No such file"),
            std::string::npos);
  EXPECT_NE(write_file(folder, "abc")->message().find("cannot be written: Is a directory"), std::string::npos);
  EXPECT_NE(write_file("/dev/full", "abc")->message().find("No space left"), std::string::npos);
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder), {}), 2) << "no temporary files stay behind";
  std::filesystem::remove_all(folder);
}

TEST(Document, TakesTheLastOfRepeatedKeysOfOtherProgramsAndListsThem) {
  std::vector<std::string> repeated;
  const auto yaml =
      parse_foreign_document("a: {b: 1}\nc: 2\na: [3]\nd: {e: 1, e: 2}\n", "f.yaml", Syntax::kYaml, {}, &repeated);
  ASSERT_TRUE(yaml.ok()) << yaml.error().message();
  EXPECT_EQ(yaml->root, Json::parse(R"({"a": [3], "c": 2, "d": {"e": 2}})"));
  EXPECT_EQ(repeated, (std::vector<std::string>{"a", "d.e"}));
  repeated.clear();
  EXPECT_EQ(parse_foreign_document(R"({"x": {"y": 1}, "x": {"z": 2}})", "f.json", Syntax::kJson, {}, &repeated)->root,
            Json::parse(R"({"x": {"z": 2}})"));
  EXPECT_EQ(repeated, (std::vector<std::string>{"x"}));
  EXPECT_FALSE(parse_foreign_document("a: 1\na: 2\n", "f.yaml", Syntax::kYaml).ok());
}

TEST(Document, UnfoldsAliasesOfOtherProgramsWithinLimits) {
  const auto read = [](const std::string& text) { return parse_foreign_document(text, "f.yaml", Syntax::kYaml); };
  EXPECT_EQ(read("a: &x {b: [1, 2]}\nc: *x\nd: &y 5\ne: [*y, *y]\n")->root,
            Json::parse(R"({"a": {"b": [1, 2]}, "c": {"b": [1, 2]}, "d": 5, "e": [5, 5]})"));
  EXPECT_NE(parse_document("a: &x 1\nb: *x\n", "f.yaml", Syntax::kYaml).error().message().find("aliases"),
            std::string::npos);
  EXPECT_NE(read("a: !include other.yaml\n").error().message().find("the tag !include is not read"), std::string::npos);
  EXPECT_FALSE(read("a: &x [*x]\n").ok());
  std::string many = "a0: &a0 [1, 1, 1, 1, 1, 1, 1, 1, 1, 1]\n";
  for (int i = 1; i < 12; ++i) {
    const std::string before = "*a" + std::to_string(i - 1);
    many += "a" + std::to_string(i) + ": &a" + std::to_string(i) + " [" + before;
    for (int k = 0; k < 9; ++k) many += ", " + before;
    many += "]\n";
  }
  EXPECT_FALSE(read(many).ok());
}

TEST(ForeignDocument, AnchorsInsideOfAnchorsStandForWhatEachMarks) {
  const auto read = parse_foreign_document(
      "a: &a {b: &b [1, &c 2, {d: &d 3}], e: 4}\nf: *b\ng: [*a, *c, *d]\nh: &h {i: *b, j: *h0}\n", "f.yaml",
      Syntax::kYaml);
  EXPECT_FALSE(read.ok()) << "an alias of nothing";
  const auto good =
      parse_foreign_document("a: &a {b: &b [1, &c 2, {d: &d 3}], e: 4}\nf: *b\ng: [*a, *c, *d]\nh: &h {i: *b}\nk: *h\n",
                             "f.yaml", Syntax::kYaml);
  ASSERT_TRUE(good.ok()) << good.error().message();
  const Json b = Json::parse(R"([1, 2, {"d": 3}])");
  EXPECT_EQ(good->root["f"], b);
  EXPECT_EQ(good->root["g"], Json::array({{{"b", b}, {"e", 4}}, 2, 3}));
  EXPECT_EQ(good->root["k"], Json({{"i", b}}));
  EXPECT_FALSE(parse_foreign_document("a: &a [1, *a]\n", "f.yaml", Syntax::kYaml).ok()) << "inside of itself";
}

}  // namespace
}  // namespace weft
