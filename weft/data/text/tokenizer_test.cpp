#include "weft/data/text/tokenizer.h"

#include <algorithm>
#include <functional>
#include <map>

#include <gtest/gtest.h>

#include "tests/support/source_tree.h"
#include "weft/base/utf8.h"

namespace weft {
namespace {

const std::filesystem::path kTextFixtures = source_tree() / "tests/parity/text";
constexpr DocumentLimits kFixtureLimits{.max_bytes = 16u << 20, .max_depth = 64, .max_values = 1'000'000};

std::string from_hex(const std::string& hex) {
  std::string bytes;
  for (size_t i = 0; i + 1 < hex.size(); i += 2) bytes += static_cast<char>(std::stoi(hex.substr(i, 2), nullptr, 16));
  return bytes;
}

TEST(Tokenizer, TokensAreThoseOfTheTokenizersLibrary) {
  const Document fixture = *read_document(kTextFixtures / "tokens.json", kFixtureLimits);
  int num_texts = 0;
  for (const auto& [form, rows] : fixture.root["forms"].items()) {
    const Result<Tokenizer> tokenizer = Tokenizer::read_folder(kTextFixtures / form);
    ASSERT_TRUE(tokenizer) << tokenizer.error().message();
    PieceCache cache;
    for (size_t i = 0; i < rows.size(); ++i) {
      const std::string text = from_hex(fixture.root["texts_hex"][i].get<std::string>());
      std::vector<int64_t> ids;
      std::vector<size_t> begins;
      tokenizer->encode(text, cache, ids, &begins);
      const auto expected = rows[i]["ids"].get<std::vector<int64_t>>();
      EXPECT_EQ(ids, expected) << form << ": " << text;
      EXPECT_EQ(tokenizer->decode(ids), rows[i]["text"].get<std::string>()) << form << ": " << text;
      EXPECT_EQ(tokenizer->decode(ids, true), rows[i]["plain"].get<std::string>()) << form << ": " << text;
      const Json& with_ends = rows[i]["with_ends"];
      EXPECT_EQ(tokenizer->encode_with_ends(text),
                with_ends.is_null() ? expected : with_ends.get<std::vector<int64_t>>());
      ASSERT_EQ(begins.size(), ids.size());
      for (size_t k = 1; k < begins.size(); ++k) EXPECT_LE(begins[k - 1], begins[k]);
      std::string streamed;
      StreamDecoder stream(*tokenizer);
      for (const int64_t id : ids) {
        const std::string piece = stream.add(id);
        EXPECT_TRUE(is_valid_utf8(piece));
        streamed += piece;
      }
      EXPECT_EQ(streamed + stream.finish(), tokenizer->decode(ids)) << "a stream gives what decoding all at once gives";
      ++num_texts;
    }
  }
  EXPECT_EQ(num_texts, 450);
}

TEST(Tokenizer, LongPiecesAreMergedLikeShortOnes) {
  // A piece with no blank is one merge problem; the heap of long ones against the scan of short ones, by the same
  // merges.
  const Tokenizer tokenizer = *Tokenizer::read_folder(kTextFixtures / "qwen2_form");
  PieceCache cache;
  std::vector<int64_t> whole;
  const std::string word = "abetheinoratioersstheandtheinonreferenceinternationalization";
  std::string text;
  for (int i = 0; i < 6; ++i) text += word;
  tokenizer.encode(text, cache, whole);
  EXPECT_EQ(tokenizer.decode(whole), text);
  // Merged by the definition: again and again the pair of the lowest rank, the leftmost of its kind.
  const Document file = *read_document(kTextFixtures / "qwen2_form/tokenizer.json", kFixtureLimits);
  std::map<std::pair<std::string, std::string>, size_t> ranks;
  for (const Json& merge : file.root["model"]["merges"])
    ranks.emplace(std::pair(merge[0].get<std::string>(), merge[1].get<std::string>()), ranks.size());
  std::vector<std::string> parts;
  for (const char c : text) parts.emplace_back(1, c);
  while (true) {
    size_t best = parts.size(), best_rank = SIZE_MAX;
    for (size_t i = 0; i + 1 < parts.size(); ++i) {
      const auto it = ranks.find({parts[i], parts[i + 1]});
      if (it != ranks.end() && it->second < best_rank) best_rank = it->second, best = i;
    }
    if (best == parts.size()) break;
    parts[best] += parts[best + 1];
    parts.erase(parts.begin() + static_cast<std::ptrdiff_t>(best) + 1);
  }
  ASSERT_EQ(whole.size(), parts.size());
  for (size_t i = 0; i < parts.size(); ++i) EXPECT_EQ(tokenizer.bytes_of(whole[i]), parts[i]);
}

TEST(Tokenizer, TokensBeginWhereTheTextHasThem) {
  const Tokenizer tokenizer = *Tokenizer::read_folder(kTextFixtures / "qwen2_form");
  // Combining marks make the text shorter before it is split.
  const std::string text = "e\u0301e\u0301<|a|>x\ny";
  PieceCache cache;
  std::vector<int64_t> ids;
  std::vector<size_t> begins;
  tokenizer.encode(text, cache, ids, &begins);
  const auto special = std::find(ids.begin(), ids.end(), *tokenizer.find("<|a|>"));
  ASSERT_NE(special, ids.end());
  EXPECT_EQ(begins[static_cast<size_t>(special - ids.begin())], 6u);
  EXPECT_EQ(begins.back(), text.size() - 1);
}

TEST(Tokenizer, WhatIsNotKnownIsRefusedByName) {
  Document document = *read_document(kTextFixtures / "qwen2_form/tokenizer.json", kFixtureLimits);
  const auto message_with = [&](const std::function<void(Json&)>& change) {
    Document changed = document;
    change(changed.root);
    const Result<Tokenizer> tokenizer = Tokenizer::read(changed);
    return tokenizer ? std::string("read") : tokenizer.error().message();
  };
  const auto has = [](const std::string& text, const char* part) { return text.find(part) != std::string::npos; };
  EXPECT_TRUE(has(message_with([](Json& j) { j["normalizer"]["type"] = "Lowercase"; }), "'Lowercase'"));
  EXPECT_TRUE(has(message_with([](Json& j) { j["model"]["type"] = "Unigram"; }), "'Unigram'"));
  EXPECT_TRUE(has(message_with([](Json& j) { j["pre_tokenizer"]["pretokenizers"][0]["pattern"]["Regex"] = "\\d+|x"; }),
                  "'\\x5cd+'") ||
              has(message_with([](Json& j) { j["pre_tokenizer"]["pretokenizers"][0]["pattern"]["Regex"] = "\\d+|x"; }),
                  "'\\d+'"));
  EXPECT_TRUE(has(message_with([](Json& j) { j["model"]["byte_fallback"] = true; }), "byte_fallback"));
  EXPECT_TRUE(has(message_with([](Json& j) { j["model"]["merges"][3] = "no such"; }), "merges[3]"));
  EXPECT_TRUE(has(message_with([](Json& j) {
                    j["model"]["vocab"].erase("a");
                    j["model"]["merges"] = Json::array();
                  }),
                  "byte 0x61"));
  EXPECT_TRUE(has(message_with([](Json& j) { j["post_processor"] = {{"type", "RobertaProcessing"}}; }), "Roberta"));
}

}  // namespace
}  // namespace weft
