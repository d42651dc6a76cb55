#include "weft/base/text.h"

#include <cstdint>

#include <gtest/gtest.h>

#include "weft/base/units.h"

namespace weft {
namespace {

const std::vector<std::string> kWords = {"describe", "plan", "simulate", "train"};

TEST(Text, ClosestFindsTyposAndNotStrangers) {
  EXPECT_EQ(closest("descirbe", kWords), "describe");
  EXPECT_EQ(closest("trian", kWords), "train");
  EXPECT_EQ(closest("pln", kWords), "plan");
  EXPECT_EQ(closest("explode", kWords), std::nullopt);
  EXPECT_EQ(closest("Simulate", kWords), "simulate");
  EXPECT_EQ(closest("", kWords), std::nullopt);
  EXPECT_EQ(closest(std::string(100'000, 'x'), kWords), std::nullopt);
}

TEST(Text, ClosestLeavesShortWordsAloneThatAreWordsThemselves) {
  EXPECT_EQ(closest("llava", std::vector<std::string>{"llama", "qwen3"}), std::nullopt);
  EXPECT_EQ(closest("npu", std::vector<std::string>{"cpu", "cuda"}), std::nullopt);
  EXPECT_EQ(closest("tpp", std::vector<std::string>{"tp", "pp"}), std::nullopt);
  EXPECT_EQ(closest("1f1v", std::vector<std::string>{"1f1b"}), "1f1b");
  EXPECT_EQ(closest("layerz", std::vector<std::string>{"layers"}), "layers");
  EXPECT_EQ(closest("laeyrs", std::vector<std::string>{"layers"}), "layers");
}

TEST(Text, ClosestKnowsOtherSpellingsAndOtherSystemsNames) {
  const std::vector<std::string> schedules = {"gpipe", "1f1b", "interleaved_1f1b", "zb_h1"};
  EXPECT_EQ(closest("1F1B", schedules), "1f1b");
  EXPECT_EQ(closest("ZB-H1", schedules), "zb_h1");
  EXPECT_EQ(closest("interleaved", schedules), "interleaved_1f1b");
  EXPECT_EQ(closest("lr", std::vector<std::string>{"name", "learning_rate"}), "learning_rate");
  EXPECT_EQ(closest("lr", std::vector<std::string>{"name", "rate"}), std::nullopt);
}

TEST(Text, QuotesEscapeControlCharactersAndShortenWithoutCuttingACharacter) {
  EXPECT_EQ(in_quotes("a\x1b[31m\n"), "'a\\x1b[31m\\x0a'");
  EXPECT_EQ(in_quotes(std::string(59, 'a') + "\xc3\xa9" + "tail"), "'" + std::string(59, 'a') + "\xc3\xa9...'");
  EXPECT_EQ(in_quotes("\xff\xc3"), "'\\xff\\xc3'") << "broken UTF-8";
  EXPECT_EQ(in_quotes("\xc2\x9b"
                      "x\xe2\x80\xae"),
            "'\\xc2\\x9bx\\xe2\\x80\\xae'")
      << "C1 controls and direction marks";
  EXPECT_EQ(in_quotes("na\xc3\xafve"), "'na\xc3\xafve'");
}

TEST(Text, LinesKeepTheirEndsAndTabsAndNoOtherControlCharacters) {
  EXPECT_EQ(printable_lines("a\tb\n\x1b[31mred\r\n"), "a\tb\n\\x1b[31mred\\x0d\n");
  EXPECT_EQ(printable_lines("\x7f\xc2\x9b"
                            "31m\x9b"),
            "\\x7f\\xc2\\x9b"
            "31m\\x9b");
  const std::string plain = "na\xc3\xafve \xe2\x80\x94 \xf0\x9f\x98\x80 \xff " + std::string(200, 'x');
  EXPECT_EQ(printable_lines(plain), plain);
}

TEST(Text, CommasGroupDigitsByThree) {
  EXPECT_EQ(with_commas(0), "0");
  EXPECT_EQ(with_commas(999), "999");
  EXPECT_EQ(with_commas(1000), "1,000");
  EXPECT_EQ(with_commas(-1234567), "-1,234,567");
  EXPECT_EQ(with_commas(-123), "-123");
  EXPECT_EQ(with_commas(INT64_MAX), "9,223,372,036,854,775,807");
}

TEST(Text, JoinsWithOr) {
  EXPECT_EQ(joined_or(kWords), "describe, plan, simulate or train");
  EXPECT_EQ(joined_or(std::vector<std::string>{"one"}), "one");
}

TEST(Units, PrefixesKeepThreeDigits) {
  EXPECT_EQ(with_prefix(0, "FLOP"), "0 FLOP");
  EXPECT_EQ(with_prefix(12'345, "FLOP"), "12.3 kFLOP");
  EXPECT_EQ(with_prefix(999'600, "FLOP"), "1.00 MFLOP");
  EXPECT_EQ(with_prefix(2.5e15, "FLOP"), "2.50 PFLOP");
  EXPECT_EQ(format_bytes(1024 * 1024 * 1.5), "1.50 MiB");
  EXPECT_EQ(format_bytes(512), "512 B");
  EXPECT_EQ(format_percent(0.00953), "0.95 %");
  EXPECT_EQ(format_percent(1.0), "100 %");
}

}  // namespace
}  // namespace weft
