#include "weft/base/utf8.h"

#include <array>
#include <set>
#include <string>

#include <gtest/gtest.h>

namespace weft {
namespace {

/// Every text that is one character.
std::set<std::string> all_characters() {
  std::set<std::string> characters;
  for (char32_t code = 0; code <= 0x10ffff; ++code) {
    if (code >= 0xd800 && code <= 0xdfff) continue;
    std::string text;
    append_utf8(text, code);
    EXPECT_EQ(utf8_at(text, 0).code, code);
    EXPECT_EQ(utf8_at(text, 0).length, text.size());
    EXPECT_EQ(utf8_before("." + text, 1 + text.size()), 1u);
    characters.insert(std::move(text));
  }
  return characters;
}

/// Bytes on both sides of every border that a byte of a character can have.
constexpr std::array kBorders = {0x00, 0x7f, 0x80, 0x8f, 0x90, 0x9f, 0xa0, 0xbf, 0xc0, 0xff};

TEST(Utf8, WhatIsWrittenOfACodeIsACharacterAndNothingElseIs) {
  const std::set<std::string> characters = all_characters();
  ASSERT_EQ(characters.size(), 0x110000u - 0x800u);
  const auto front = [&](std::string_view text) -> size_t {
    for (size_t length = 1; length <= text.size(); ++length) {
      if (characters.contains(std::string(text.substr(0, length)))) return length;
    }
    return 0;
  };
  for (int lead = 0; lead < 256; ++lead) {
    for (const int second : kBorders) {
      for (const int third : kBorders) {
        for (const int fourth : kBorders) {
          const std::string bytes = {static_cast<char>(lead), static_cast<char>(second), static_cast<char>(third),
                                     static_cast<char>(fourth)};
          for (size_t length = 1; length <= bytes.size(); ++length) {
            const std::string_view text = std::string_view(bytes).substr(0, length);
            ASSERT_EQ(utf8_front(text).length, front(text))
                << lead << ' ' << second << ' ' << third << ' ' << fourth << ", " << length << " bytes";
          }
        }
      }
    }
  }
}

TEST(Utf8, TheFirstBrokenByteIsTold) {
  EXPECT_EQ(first_not_utf8(""), std::nullopt);
  EXPECT_EQ(first_not_utf8("h\u00e9\U0001f600"), std::nullopt);
  EXPECT_TRUE(is_valid_utf8("h\u00e9\U0001f600"));
  EXPECT_EQ(first_not_utf8("\u00e9\xff"), 2u);
  EXPECT_EQ(first_not_utf8("\u00e9 \xe2\x82"), 3u) << "a character that was cut off begins there";
}

TEST(Utf8, BrokenBytesAreReplacedAsPythonDoes) {
  EXPECT_EQ(with_replacements("a\xff"
                              "b"),
            "a\ufffdb");
  EXPECT_EQ(with_replacements("\xe2\x82"), "\ufffd") << "a character that was cut off";
  EXPECT_EQ(with_replacements("\xf0\x9f\x92x"), "\ufffdx");
  EXPECT_EQ(with_replacements("\xed\xa0\x80"), "\ufffd\ufffd\ufffd") << "a surrogate";
  EXPECT_EQ(with_replacements("\xc0\xaf"), "\ufffd\ufffd") << "an overlong form";
  EXPECT_EQ(with_replacements("\xf4\x90\x80\x80"), "\ufffd\ufffd\ufffd\ufffd") << "beyond the last character";
}

}  // namespace
}  // namespace weft
