#include <functional>

#include <gtest/gtest.h>

#include "tests/support/source_tree.h"
#include "weft/data/text/tokenizer.h"

namespace weft {
namespace {

constexpr DocumentLimits kFileLimits{.max_bytes = 16u << 20, .max_depth = 64, .max_values = 1'000'000};

using Change = std::function<void(Json&)>;

class TokenizerReader : public testing::Test {
 protected:
  Result<Tokenizer> read(const Change& change) const {
    Document changed = document_;
    change(changed.root);
    return Tokenizer::read(changed);
  }
  /// "" where the changed file is read.
  std::string message(const Change& change) const {
    const Result<Tokenizer> tokenizer = read(change);
    return tokenizer ? "" : tokenizer.error().message();
  }
  void expect_refused(const std::string& part, const Change& change) const {
    const std::string found = message(change);
    EXPECT_NE(found.find(part), std::string::npos) << part << " in: " << found;
  }

  const Document document_ = *read_document(source_tree() / "tests/parity/text/qwen2_form/tokenizer.json", kFileLimits);
};

Json& split(Json& file) {
  return file["pre_tokenizer"]["pretokenizers"][0];
}
Json& byte_level(Json& file) {
  return file["pre_tokenizer"]["pretokenizers"][1];
}
Json& added(Json& file) {
  return file["added_tokens"][0];
}
void set_ends(Json& file, const char* single) {
  file["post_processor"] = {{"type", "TemplateProcessing"}, {"single", Json::parse(single)}};
}

TEST_F(TokenizerReader, FlagsAreTrueOrFalse) {
  for (const char* key : {"special", "normalized", "single_word", "lstrip", "rstrip"}) {
    const std::string field = std::string("added_tokens[0].") + key;
    expect_refused(field + ": is the number 1, true or false is needed", [&](Json& j) { added(j)[key] = 1; });
    expect_refused(field + ": is the text 'true'", [&](Json& j) { added(j)[key] = "true"; });
    expect_refused(field + ": is missing", [&](Json& j) { added(j).erase(key); });
  }
  for (const char* key : {"byte_fallback", "ignore_merges"}) {
    expect_refused(std::string("model.") + key + ": is the text 'yes'", [&](Json& j) { j["model"][key] = "yes"; });
    EXPECT_EQ(message([&](Json& j) { j["model"].erase(key); }), "") << "files of older versions leave it out";
  }
  expect_refused("pre_tokenizer.invert: is the number 1", [](Json& j) { split(j)["invert"] = 1; });
  expect_refused("pre_tokenizer.add_prefix_space: is the number 1",
                 [](Json& j) { byte_level(j)["add_prefix_space"] = 1; });
  expect_refused("pre_tokenizer.use_regex: is the number 0", [](Json& j) { byte_level(j)["use_regex"] = 0; });
}

TEST_F(TokenizerReader, WhatTheModelLeavesOutIsNull) {
  expect_refused("model.dropout: is the text ''", [](Json& j) { j["model"]["dropout"] = ""; });
  expect_refused("model.unk_token: is the number 0", [](Json& j) { j["model"]["unk_token"] = 0; });
  EXPECT_EQ(message([](Json& j) { j["model"]["dropout"] = 0.0; }), "");
  EXPECT_EQ(message([](Json& j) { j["model"]["end_of_word_suffix"] = ""; }), "");
  expect_refused("version: is the text '2.0', '1.0' is known", [](Json& j) { j["version"] = "2.0"; });
}

TEST_F(TokenizerReader, SequencesHaveTheirLists) {
  for (const auto& [key, list] : {std::pair("normalizer", "normalizers"), std::pair("pre_tokenizer", "pretokenizers"),
                                  std::pair("post_processor", "processors"), std::pair("decoder", "decoders")}) {
    expect_refused(std::string(key) + "." + list + ": is missing, a list of steps is needed", [&](Json& j) {
      j[key] = {{"type", "Sequence"}};
    });
  }
}

TEST_F(TokenizerReader, OnlyBytesAreDecoded) {
  expect_refused("decoder: has the step 'Fuse'", [](Json& j) { j["decoder"] = {{"type", "Fuse"}}; });
  expect_refused("decoder: has the step ''", [](Json& j) { j["decoder"] = 7; });
  EXPECT_EQ(message([](Json& j) { j.erase("decoder"); }), "");
  EXPECT_EQ(message([](Json& j) {
              j["decoder"] = {{"type", "Sequence"}, {"decoders", Json::array({j["decoder"]})}};
            }),
            "");
}

TEST_F(TokenizerReader, TheTextStandsOnceBetweenItsEnds) {
  const char* const none = R"([{"SpecialToken": {"id": "<|a|>", "type_id": 0}}])";
  const char* const two = R"([{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}])";
  const char* const other = R"([{"Sequence": {"id": "B", "type_id": 0}}])";
  expect_refused("post_processor.single: lacks the sequence 'A'", [&](Json& j) { set_ends(j, none); });
  expect_refused("post_processor.single: has another text", [&](Json& j) { set_ends(j, two); });
  expect_refused("post_processor.single: has another text", [&](Json& j) { set_ends(j, other); });
}

TEST_F(TokenizerReader, ATokenHasOneTextAndOneId) {
  const auto add = [](Json& file, int64_t id, const char* content) {
    Json token = added(file);
    token["id"] = id;
    token["content"] = content;
    file["added_tokens"].push_back(token);
  };
  const auto id_of = [](const Json& file, const char* token) { return file["model"]["vocab"][token].get<int64_t>(); };
  expect_refused("the same id", [&](Json& j) { j["model"]["vocab"]["b"] = id_of(j, "a"); });
  expect_refused("which is that of 'a'", [&](Json& j) { add(j, id_of(j, "a"), "a longer text"); });
  expect_refused("gives 'a' the id 500, but it has", [&](Json& j) { add(j, 500, "a"); });
  expect_refused("which is that of '<|a|>'", [&](Json& j) { add(j, added(j)["id"], "other"); });
  expect_refused("gives '<|a|>' the id 500", [&](Json& j) { add(j, 500, "<|a|>"); });
  expect_refused("gives '<|a|>' again, with other flags", [&](Json& j) {
    add(j, added(j)["id"], "<|a|>");
    j["added_tokens"].back()["lstrip"] = true;
  });
  EXPECT_EQ(message([&](Json& j) { add(j, added(j)["id"], "<|a|>"); }), "") << "the same token twice";
}

TEST_F(TokenizerReader, AnAddedTokenMayBeTheVocabularysOwn) {
  // In NFKC the text of the added token is another one, but what merges make keeps its bytes.
  const Result<Tokenizer> tokenizer = read([](Json& j) {
    j["normalizer"]["type"] = "NFKC";
    Json token = added(j);
    token["content"] = "\u0140";
    token["id"] = j["model"]["vocab"]["\u0140"];
    token["normalized"] = true;
    j["added_tokens"].push_back(token);
  });
  ASSERT_TRUE(tokenizer) << tokenizer.error().message();
  EXPECT_EQ(tokenizer->bytes_of(*tokenizer->find("\u0140")).size(), 1u);
}

TEST_F(TokenizerReader, AnAddedTokenSaysWhatItsIdMayBe) {
  expect_refused("added_tokens[0].id: is the number -1, a whole number from 0 to 3999999 is needed",
                 [](Json& j) { added(j)["id"] = -1; });
  expect_refused("added_tokens[0].id: is the number 5000000", [](Json& j) { added(j)["id"] = 5'000'000; });
  expect_refused("added_tokens[0].content: is missing", [](Json& j) { added(j).erase("content"); });
  expect_refused("added_tokens[0].content: has 2000 bytes, up to 1024 are allowed",
                 [](Json& j) { added(j)["content"] = std::string(2000, 'x'); });
}

TEST_F(TokenizerReader, StepsAndAlternativesAreFew) {
  const auto repeat = [](Json& j, size_t count) {
    Json& steps = j["pre_tokenizer"]["pretokenizers"];
    const Json first = steps[0], last = steps[1];
    steps = Json::array();
    for (size_t i = 0; i < count; ++i) steps.push_back(first);
    steps.push_back(last);
  };
  EXPECT_EQ(message([&](Json& j) { repeat(j, 16); }), "");
  expect_refused("pre_tokenizer.pretokenizers: has more than 16 steps that split",
                 [&](Json& j) { repeat(j, 100'000); });
  const auto with_alternatives = [](Json& j, int count) {
    std::string pattern = "\\s+";
    for (int i = 1; i < count; ++i) pattern += "|\\s+";
    split(j)["pattern"]["Regex"] = pattern;
  };
  EXPECT_EQ(message([&](Json& j) { with_alternatives(j, 64); }), "");
  expect_refused("pre_tokenizer.pattern: has 65 alternatives", [&](Json& j) { with_alternatives(j, 65); });
}

}  // namespace
}  // namespace weft
