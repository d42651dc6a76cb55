#include "weft/exchange/file_difference.h"

#include <algorithm>
#include <random>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

namespace weft {
namespace {

TEST(FileDifference, IsInTheFormOfDiffU) {
  const std::string before = "one\ntwo\nthree\nfour\nfive\nsix\nseven\neight\nnine\nten\n";
  std::string after = before;
  after.replace(after.find("two"), 3, "TWO");
  after.replace(after.find("ten\n"), 4, "ten\neleven");
  EXPECT_EQ(file_difference("a.sh", before, after),
            "--- a.sh\n+++ a.sh\n@@ -1,5 +1,5 @@\n one\n-two\n+TWO\n three\n four\n five\n"
            "@@ -8,3 +8,4 @@\n eight\n nine\n ten\n+eleven\n\\ No newline at end of file\n");
  EXPECT_EQ(file_difference("a.sh", "", "x\n"), "--- a.sh\n+++ a.sh\n@@ -0,0 +1 @@\n+x\n");
  EXPECT_EQ(file_difference("a.sh", "x\n", "x\n"), "");
}

/// What patch does, written without looking at how differences are made.
std::string patched(const std::string& before, const std::string& difference) {
  std::vector<std::string> old_lines, lines;
  const auto split = [](const std::string& text, std::vector<std::string>& into) {
    for (size_t begin = 0; begin < text.size();) {
      const size_t end = std::min(text.find('\n', begin), text.size() - 1) + 1;
      into.push_back(text.substr(begin, end - begin));
      begin = end;
    }
  };
  split(before, old_lines);
  split(difference, lines);
  std::string result;
  size_t at = 0;
  for (size_t i = 2; i < lines.size(); ++i) {
    const std::string& line = lines[i];
    if (line.starts_with("@@")) {
      const bool is_none = line.find(",0 +") != std::string::npos;
      const size_t first = std::stoul(line.substr(4)) - (is_none ? 0 : 1);
      while (at < first) result += old_lines.at(at++);
      continue;
    }
    if (line.starts_with("\\")) continue;
    const bool is_open = i + 1 < lines.size() && lines[i + 1].starts_with("\\");
    const std::string content = line.substr(1, line.size() - 1 - (is_open ? 1 : 0));
    if (line[0] != '+') {
      EXPECT_EQ(old_lines.at(at++), content);
    }
    if (line[0] != '-') result += content;
  }
  while (at < old_lines.size()) result += old_lines[at++];
  return result;
}

TEST(FileDifference, AppliedToTheOldTextGivesTheNewOne) {
  std::mt19937_64 random(7);
  for (int draw = 0; draw < 500; ++draw) {
    const auto drawn = [&](size_t most) {
      std::string text;
      for (size_t i = random() % (most + 1); i > 0; --i) text += fmt::format("line {}\n", random() % 6);
      if (random() % 4 == 0 && !text.empty()) text.pop_back();
      return text;
    };
    const std::string before = drawn(30), after = drawn(30);
    if (before == after) continue;
    ASSERT_EQ(patched(before, file_difference("f", before, after)), after) << before << "\nto\n" << after;
  }
}

}  // namespace
}  // namespace weft
