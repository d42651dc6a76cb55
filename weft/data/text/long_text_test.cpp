#include <algorithm>
#include <chrono>
#include <functional>
#include <map>
#include <random>

#include <gtest/gtest.h>

#include "weft/data/text/added_tokens.h"
#include "weft/data/text/split_pattern.h"

namespace weft {
namespace {

/// Far above what a text of 200,000 characters takes, also under sanitizers; far below what it takes where every
/// character is compared with every other.
constexpr double kMostSeconds = 10;

double seconds_of(const std::function<void()>& work) {
  const auto begin = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

std::vector<std::string> pieces_of(const std::string& pattern, const std::string& text) {
  const SplitPattern split = *SplitPattern::parse(pattern, "tokenizer.json", "pattern");
  SplitPattern::Misses misses;
  std::vector<std::string> pieces;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = split.piece_end(text, begin, misses);
    pieces.push_back(text.substr(begin, end - begin));
    begin = end;
  }
  return pieces;
}

using Pieces = std::vector<std::string>;

constexpr const char* kCasedWord =
    "[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]*[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]+";

TEST(LongTexts, ManyAddedTokensOfOneBeginningCostNoMoreThanOne) {
  std::vector<AddedToken> tokens;
  for (int i = 0; i < 20'000; ++i) tokens.push_back({.id = i, .content = "<|t" + std::to_string(i) + "|>"});
  const AddedTokens added(std::move(tokens));
  const std::string text = std::string(200'000, '<') + "|t19999|>";
  std::vector<AddedTokens::Part> parts;
  EXPECT_LT(seconds_of([&] { added.split(text, parts); }), kMostSeconds);
  ASSERT_EQ(parts.size(), 2u);
  EXPECT_EQ(parts[1].id, 19'999);
}

TEST(LongTexts, BlanksThatATokenTakesAreGoneThroughOnce) {
  const AddedTokens added({{.id = 7, .content = " ", .takes_right = true}});
  std::vector<AddedTokens::Part> parts;
  const std::string text(300'000, ' ');
  EXPECT_LT(seconds_of([&] { added.split(text, parts); }), kMostSeconds);
  ASSERT_EQ(parts.size(), text.size()) << "as the tokenizers library has it";
  EXPECT_EQ(parts.front().end, text.size());
  EXPECT_EQ(parts.back().begin, text.size() - 1);
}

TEST(LongTexts, WhatNoAlternativeMatchesIsSearchedOnce) {
  const std::string spaces(200'000, ' '), capitals(200'000, 'A');
  EXPECT_LT(seconds_of([&] { EXPECT_EQ(pieces_of("\\s*[\\r\\n]+", spaces).size(), 1u); }), kMostSeconds);
  EXPECT_LT(seconds_of([&] { EXPECT_EQ(pieces_of(kCasedWord, capitals).size(), 1u); }), kMostSeconds);
  EXPECT_LT(seconds_of([&] {
              const std::string either = std::string(kCasedWord) + "|\\p{L}";
              EXPECT_EQ(pieces_of(either, capitals).size(), capitals.size());
            }),
            kMostSeconds);
}

TEST(AddedTokens, TheLongestThatBeginsAtAPlaceIsFound) {
  std::mt19937 random(3);
  const auto word = [&](size_t most) {
    std::string text;
    for (size_t size = 1 + random() % most; size > 0; --size) text += "abc"[random() % 3];
    return text;
  };
  for (int round = 0; round < 300; ++round) {
    std::map<std::string, int64_t> known;
    while (known.size() < 12) known.emplace(word(6), std::ssize(known));
    std::vector<AddedToken> tokens;
    for (const auto& [content, id] : known) tokens.push_back({.id = id, .content = content});
    std::shuffle(tokens.begin(), tokens.end(), random);
    const std::string text = word(40);
    std::vector<AddedTokens::Part> parts;
    AddedTokens(tokens).split(text, parts);
    // By the definition: at each place every token is tried.
    std::vector<std::pair<size_t, int64_t>> expected, found;
    for (size_t i = 0; i < text.size();) {
      const std::pair<const std::string, int64_t>* best = nullptr;
      for (const auto& token : known) {
        if (text.compare(i, token.first.size(), token.first) == 0 &&
            (best == nullptr || token.first.size() > best->first.size()))
          best = &token;
      }
      if (best != nullptr) expected.emplace_back(i, best->second);
      i += best != nullptr ? best->first.size() : 1;
    }
    for (const AddedTokens::Part& part : parts) {
      if (part.id >= 0) found.emplace_back(part.begin, part.id);
    }
    EXPECT_EQ(found, expected) << text;
  }
}

TEST(AddedTokens, BlanksOnBothSidesBelongToOneToken) {
  // What the tokenizers library gives.
  const auto num_found = [](const AddedToken& token, const std::string& text) {
    std::vector<AddedTokens::Part> parts;
    AddedTokens({token}).split(text, parts);
    return std::count_if(parts.begin(), parts.end(), [](const AddedTokens::Part& part) { return part.id == 7; });
  };
  EXPECT_EQ(num_found({.id = 7, .content = " ", .takes_left = true, .takes_right = true}, "a    a  "), 2);
  EXPECT_EQ(num_found({.id = 7, .content = " ", .takes_right = true}, "a    a  "), 6);
}

TEST(AddedTokens, JoinersBelongToWords) {
  const AddedTokens added({{.id = 1, .content = "ab", .is_single_word = true}});
  const auto is_found = [&](const std::string& text) {
    std::vector<AddedTokens::Part> parts;
    added.split(text, parts);
    return std::any_of(parts.begin(), parts.end(), [](const AddedTokens::Part& part) { return part.id == 1; });
  };
  // Checked with the tokenizers library.
  EXPECT_TRUE(is_found("ab") && is_found("-ab") && is_found("\u24b6 ab") && is_found("\u200bab"));
  EXPECT_FALSE(is_found("\u200dab") || is_found("ab\u200d") || is_found("\u200cab") || is_found("xab"));
}

TEST(SplitPattern, WhatWasSearchedInVainHidesNothing) {
  // Pieces of the tokenizers library.
  EXPECT_EQ(pieces_of(kCasedWord, "\u0301AAA!"), (Pieces{"\u0301", "AAA!"}));
  EXPECT_EQ(pieces_of(kCasedWord, "AA\u0301AAA BBb"), (Pieces{"AA\u0301", "AAA", " BBb"}));
  EXPECT_EQ(pieces_of(kCasedWord, "AA\u5929AA\u5929A a"), (Pieces{"AA\u5929AA\u5929", "A", " a"}));
  EXPECT_EQ(pieces_of(kCasedWord, "  AAAa\u5929AAA"), (Pieces{" ", " AAAa\u5929", "AAA"}));
  EXPECT_EQ(pieces_of(kCasedWord, "A!\u0301AA\u0301"), (Pieces{"A", "!\u0301AA\u0301"}));
  EXPECT_EQ(pieces_of("\\s*[\\r\\n]+", "   a  \n  b \n\n   "), (Pieces{"   a", "  \n", "  b", " \n\n", "   "}));
  EXPECT_EQ(pieces_of("\\s*[\\r\\n]+|\\p{L}", "   a  \n  bc  \n\n   "),
            (Pieces{"   ", "a", "  \n", "  ", "b", "c", "  \n\n", "   "}));
}

}  // namespace
}  // namespace weft
