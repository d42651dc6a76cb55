#include <gtest/gtest.h>

#include "weft/data/templates/chat_template.h"

namespace weft {
namespace {

/// The rendered text, or the error.
std::string outcome(const std::string& text, const Json& messages = Json::array()) {
  const Result<ChatTemplate> chat = ChatTemplate::parse(text, "t");
  if (!chat) return chat.error().message();
  const auto rendering = chat->render({.messages = messages});
  return rendering ? rendering->text : rendering.error().message();
}

void expect_refused(const std::string& text, const std::string& why) {
  const std::string found = outcome(text);
  EXPECT_NE(found.find("t: line 1: "), std::string::npos) << text.substr(0, 200) << ": " << found.substr(0, 200);
  EXPECT_NE(found.find(why), std::string::npos) << text.substr(0, 200) << ": " << found.substr(0, 200);
}

std::string repeated(const std::string& text, int count) {
  std::string all;
  for (int i = 0; i < count; ++i) all += text;
  return all;
}

TEST(TemplateLimits, MacrosThatCallThemselvesStop) {
  expect_refused("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "deep");
  // Each call is inside a chain and brackets: what is inside each other counts, not the calls.
  expect_refused("{% macro f() %}{{ (f())" + repeated("*1", 380) + " }}{% endmacro %}{{ f() }}", "deep");
  expect_refused(
      "{% macro f() %}{{ " + repeated("(", 30) + "f()" + repeated(")|trim|trim", 30) + " }}{% endmacro %}{{ f() }}",
      "deep");
}

TEST(TemplateLimits, ExpressionsAreOfBoundedDepth) {
  expect_refused("{{ " + repeated("(", 100'000) + "1" + repeated(")", 100'000) + " }}", "deep");
  expect_refused("{{ a" + repeated(".b", 100'000) + " }}", "deep");
  expect_refused("{{ a" + repeated("|trim", 100'000) + " }}", "deep");
  expect_refused("{{ " + repeated("not ", 100'000) + "1 }}", "deep");
  // Chains of each kind inside chains of another.
  std::string mixed = "1";
  for (int i = 0; i < 30; ++i) mixed = "(" + mixed + repeated("|abs", 90) + ")";
  expect_refused("{{ " + mixed + " }}", "deep");
}

TEST(TemplateLimits, LongChainsOfOperatorsAreRead) {
  EXPECT_EQ(outcome("{{ 1" + repeated(" + 1", 2000) + " }}"), "2001");
  EXPECT_EQ(outcome("{{ 'a'" + repeated(" ~ 'a'", 2000) + " }}"), std::string(2001, 'a'));
  EXPECT_EQ(outcome("{{ 1" + repeated(" and 1", 2000) + " and 'b' or 2 }}"), "b");
  EXPECT_EQ(outcome("{{ 'a'" + repeated(".strip()", 60) + repeated("|trim", 60) + " }}"), "a");
}

TEST(TemplateLimits, ValuesAreOfBoundedDepth) {
  const std::string loop = "{% set ns = namespace(x=0) %}{% for i in range(1000000) %}";
  expect_refused(loop + "{% set ns.x = [ns.x] %}{% endfor %}", "values nested more than 100 deep");
  expect_refused(loop + "{% set ns.x = {'a': ns.x} %}{% endfor %}", "values nested more than 100 deep");
  expect_refused(loop + "{% set ns.x = [ns.x].index %}{% endfor %}", "values nested more than 100 deep");
  EXPECT_EQ(
      outcome("{% set ns = namespace(x=0) %}{% for i in range(50) %}{% set ns.x = [ns.x] %}{% endfor %}{{ ns.x }}"),
      std::string(50, '[') + "0" + std::string(50, ']'));
  EXPECT_EQ(outcome("{% set ns = namespace(x=[]) %}{% for i in range(500) %}{% set ns.x = ns.x + [i] %}{% endfor %}"
                    "{{ ns.x|length }}"),
            "500");
}

TEST(TemplateLimits, NoNamespaceIsInsideItself) {
  for (const char* value : {"ns", "[ns]", "{'a': [ns]}", "namespace()"})
    expect_refused(std::string("{% set ns = namespace() %}{% set ns.a = ") + value + " %}",
                   "namespace into a namespace");
  expect_refused(
      "{% set n = namespace() %}{% for x in [n] %}{% set n.a = loop %}{% endfor %}{% for x in [n, 1] %}"
      "{% set n.a = loop %}{% endfor %}",
      "namespace into a namespace");
  EXPECT_EQ(outcome("{% set ns = namespace(a=1) %}{{ ns == ns }}{{ ns == namespace(a=1) }}"), "TrueFalse");
  EXPECT_EQ(
      outcome("{% set ns = namespace() %}{% for x in [1] %}{% set ns.last = loop.last %}{% endfor %}{{ ns.last }}"),
      "True");
}

TEST(TemplateLimits, LengthsOfRangesAreExact) {
  EXPECT_EQ(outcome("{{ range(9223372036854775800, 9223372036854775807, 5)|length }}"), "2");
  EXPECT_EQ(outcome("{{ range(1000000)|length }}"), "1000000");
  expect_refused("{{ range(1000001) }}", "range");
  expect_refused("{{ range(-9223372036854775807, 9223372036854775807) }}", "range");
  expect_refused("{{ range(9223372036854775807, -9223372036854775807, -1) }}", "range");
}

TEST(TemplateLimits, NumbersThatDoNotFitAreRefused) {
  expect_refused("{{ (-9223372036854775807 - 1)|abs }}", "too large");
  expect_refused("{{ -(-9223372036854775807 - 1) }}", "too large");
  expect_refused("{{ 1 // 0 }}", "zero");
  expect_refused("{{ 'a\\nb'|indent('nan'|float) }}", "'width', where a whole number is needed");
}

TEST(TemplateLimits, TextsAndListsAreOfBoundedSize) {
  expect_refused("{{ 'aaaaaaaaaa' * 1000000000 }}", "too often");
  expect_refused(
      "{% set ns = namespace(s='aaaaaaaa') %}{% for i in range(40) %}{% set ns.s = ns.s ~ ns.s %}{% endfor %}",
      "text of more than 268435456 bytes");
  expect_refused("{% set s = 'aaaaaaaaaa' * 1000000 %}{{ s|replace('a', s)|length }}", "bytes");
  expect_refused("{% set ns = namespace(s=[1]) %}{% for i in range(40) %}{% set ns.s = ns.s + ns.s %}{% endfor %}",
                 "list of more than 4000000 items");
  expect_refused("{{ 'a'|indent(9223372036854775807, true) }}", "bytes");
  // A value that is small, and long when it is written.
  const std::string wide =
      "{% set ns = namespace(s=['a', 'a']) %}{% for i in range(60) %}{% set ns.s = [ns.s, ns.s] %}"
      "{% endfor %}";
  expect_refused(wide + "{{ ns.s }}", "more than");
  expect_refused(wide + "{{ ns.s|tojson }}", "more than");
  expect_refused(wide + "{% set a = ns.s %}" + wide + "{{ a == ns.s }}", "steps");
}

TEST(TemplateLimits, WorkIsCountedByItsSize) {
  const std::string text = "{% set s = 'a' * 10000000 %}", loop = "{% for i in range(1000000) %}";
  for (const char* work : {"s|length", "s[1:2]", "s[5]", "'b' in s", "s.find('b')", "s ~ 'b'", "s|tojson|length"})
    expect_refused(text + loop + "{% set t = " + work + " %}{% endfor %}", "steps");
  // Of items and keys time is not their square.
  EXPECT_EQ(outcome("{{ range(1000000)|unique|length }}"), "1000000");
  std::string keys = "{{ {";
  for (int i = 0; i < 40'000; ++i) keys += "'k" + std::to_string(i) + "':1,";
  EXPECT_EQ(outcome(keys + "}|length }}"), "40000");
  // A search for what nearly fits everywhere.
  EXPECT_EQ(outcome(text + "{{ s.find('a' * 4000000 ~ 'b') }}{{ s.rfind('b' ~ 'a' * 4000000) }}"), "-1-1");
}

TEST(TemplateLimits, LongRecordsAreSplitAndCounted) {
  std::string content;
  for (int i = 0; i < 400'000; ++i) content += "word ";
  const Json messages = Json::array({{{"role", "user"}, {"content", content}}});
  EXPECT_EQ(outcome("{% for m in messages %}{{ m.content.split()|length }} {{ m.content.rsplit()|length }} "
                    "{{ m.content.split(' ')|length }} {{ m.content|trim|length }}{% endfor %}",
                    messages),
            "400000 400000 400001 1999999");
}

TEST(TemplateLimits, DeepConversationsAreRefused) {
  Json deep = 1;
  for (int i = 0; i < 200; ++i) deep = Json::array({deep});
  EXPECT_NE(outcome("x", deep).find("nested more than 100 deep"), std::string::npos);
}

}  // namespace
}  // namespace weft
