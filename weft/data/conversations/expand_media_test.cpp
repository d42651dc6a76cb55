#include "weft/data/conversations/expand_media.h"

#include <chrono>
#include <random>

#include <gtest/gtest.h>

#include "tests/support/source_tree.h"

namespace weft {
namespace {

class ExpandMedia : public testing::Test {
 protected:
  ExpandMedia() {
    rule_.image = token("<|ab|>", "<|a|>");
    rule_.video = token("<left>", "<right>");
    rule_.audio = token("word", "word");
  }
  MediaToken token(const char* id, const char* placeholder) const {
    return {.id = *tokenizer_.find(id), .placeholder = *tokenizer_.find(placeholder)};
  }

  const Tokenizer tokenizer_ = *Tokenizer::read_folder(source_tree() / "tests/parity/text/qwen2_form");
  MediaTokenRule rule_;
};

TEST_F(ExpandMedia, RangesLieWhereTheirTextIs) {
  std::mt19937 random(5);
  for (int round = 0; round < 500; ++round) {
    std::string text, expected;
    std::vector<MediaReference> media;
    std::vector<MediaSize> sizes;
    std::vector<std::pair<size_t, size_t>> cuts;  // of the text and of what it becomes
    for (int part = 0; part < 12; ++part) {
      const auto kind = static_cast<MediaKind>(random() % 3);
      const char* const placeholder = kind == MediaKind::kImage   ? "<|a|>"
                                      : kind == MediaKind::kVideo ? "<right>"
                                                                  : "word";
      const char* const written = kind == MediaKind::kImage ? "<|ab|>" : kind == MediaKind::kVideo ? "<left>" : "word";
      const std::string between(random() % 3, '<');
      cuts.emplace_back(text.size(), expected.size());
      text += between + placeholder;
      expected += between;
      media.push_back({.kind = kind, .files = {}});
      sizes.push_back({.tokens = 1});
      if (kind == MediaKind::kVideo && random() % 2 == 0) {
        sizes.back().captions = {"one", "two"};
        expected += std::string("one") + written + "two";
      }
      expected += written;
    }
    cuts.emplace_back(text.size(), expected.size());
    std::vector<TextRange> learnt, wanted;
    for (int i = 0; i < 5; ++i) {
      const auto& [a, moved_a] = cuts[random() % cuts.size()];
      const auto& [b, moved_b] = cuts[random() % cuts.size()];
      learnt.push_back({std::min(a, b), std::max(a, b)});
      wanted.push_back({std::min(moved_a, moved_b), std::max(moved_a, moved_b)});
    }
    const ExpandedText expanded = expand_media(tokenizer_, rule_, media, sizes, text, learnt);
    EXPECT_EQ(expanded.text, expected);
    EXPECT_EQ(expanded.learnt, wanted) << text;
  }
}

TEST_F(ExpandMedia, ManyPlacesOfOneKindAreFoundInOnePass) {
  constexpr size_t kCount = 100'000;
  std::string text;
  std::vector<TextRange> learnt;
  for (size_t i = 0; i < kCount; ++i) {
    learnt.push_back({text.size(), text.size() + 1});
    text += "x<|a|> and";
  }
  const std::vector<MediaReference> media(kCount, {.kind = MediaKind::kImage, .files = {}});
  const std::vector<MediaSize> sizes(kCount, {.tokens = 1});
  const auto begin = std::chrono::steady_clock::now();
  const ExpandedText expanded = expand_media(tokenizer_, rule_, media, sizes, text, learnt);
  // Milliseconds, and minutes where each place looks through the text for the other kinds.
  EXPECT_LT(std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count(), 10);
  EXPECT_EQ(expanded.inserted.size(), kCount);
  EXPECT_EQ(expanded.text.size(), text.size() + kCount);
  EXPECT_EQ(expanded.text[expanded.learnt.back().begin], 'x');
}

}  // namespace
}  // namespace weft
