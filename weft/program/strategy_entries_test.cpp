#include "weft/program/strategy_entries.h"

#include <gtest/gtest.h>

#include "weft/program/program_builder.h"

namespace weft::strategy_entries_test {
namespace {

Program chain(size_t length) {
  ProgramBuilder code("chain");
  code.dim("h", 64);
  size_t last = code.input("x", "h");
  for (size_t i = 0; i < length; ++i) last = code.elementwise("layer." + std::to_string(i), "h -> h", {last});
  return *code.finish();
}

Result<OperatorPins> pins(const Program& program, const std::vector<std::string>& patterns) {
  std::vector<StrategyEntry> entries;
  for (const std::string& pattern : patterns) entries.push_back({.pattern = pattern, .words = {{"tp", "h"}}});
  return pins_of(entries, program, program.operators.size(), *AxisGrid::create({{"tp", 2}}));
}

/// What is said of a field, or nothing.
template <typename Read>
std::string complaint(const Json& root, Read read) {
  Findings findings("test");
  const Document document{.source = "test", .root = root};
  Fields fields(document, findings);
  read(fields);
  const auto error = findings.first();
  return error ? error->message() : "";
}

TEST(StrategyEntries, NamesAndPatternsPinWhatTheyFit) {
  const Program program = chain(20);
  const Result<OperatorPins> found = pins(program, {"layer.3", "*.1?", "layer.7*"});
  ASSERT_TRUE(found) << found.error().message();
  for (size_t op = 0; op < 20; ++op) EXPECT_EQ(found->choices[op][0].has_value(), op == 3 || op == 7 || op >= 10) << op;
  for (const char* wrong : {"layer.33", "*.x", "layer.1?????????????*"}) {
    const Result<OperatorPins> none = pins(program, {wrong});
    ASSERT_FALSE(none) << wrong;
    EXPECT_NE(none.error().message().find("no operator of chain fits the pattern"), std::string::npos);
  }
}

TEST(StrategyEntries, EveryOperatorMayBeNamedButNotHaveAPatternOfItsOwn) {
  const Program program = chain(5000);
  std::vector<std::string> names, patterns;
  for (const Operator& op : program.operators) {
    names.push_back(op.name);
    patterns.push_back("*" + op.name);
  }
  EXPECT_TRUE(pins(program, names));
  const Result<OperatorPins> many = pins(program, patterns);
  ASSERT_FALSE(many);
  EXPECT_NE(many.error().message().find("'*' or '?' more than 2,000, which 5,000 operators allow"), std::string::npos)
      << many.error().message();
}

TEST(StrategyEntries, NumbersAreQuotedAsTheyAreWritten) {
  const Json root = {{"operators", {{"a", uint64_t{18446744073709551615u}}, {"b", -3}}}};
  std::vector<StrategyEntry> entries;
  EXPECT_EQ(complaint(root, [&](Fields& fields) { entries = read_entries(fields, "operators"); }), "");
  ASSERT_EQ(entries.size(), 2u);
  EXPECT_EQ(entries[0].words[0].second, "18446744073709551615");
  EXPECT_EQ(entries[1].words[0].second, "-3");
}

TEST(StrategyEntries, AMeshThatIsNoneIsNamed) {
  const auto message = [](const Json& mesh) {
    return complaint({{"mesh", mesh}}, [](Fields& fields) { read_axes(fields, "mesh"); });
  };
  EXPECT_EQ(message({{"tp", 8}, {"dp", 1 << 24}}), "");
  EXPECT_NE(message("tp=8").find("mesh: is the text 'tp=8', expected are axes with their sizes"), std::string::npos);
  for (const Json& size : {Json(0), Json(-1), Json((1 << 24) + 1), Json(uint64_t{18446744073709551615u}), Json("8")}) {
    const std::string text = message({{"tp", size}});
    EXPECT_NE(text.find(" for the axis 'tp', expected is a whole number from 1 to 16,777,216"), std::string::npos)
        << text;
  }
}

}  // namespace
}  // namespace weft::strategy_entries_test
