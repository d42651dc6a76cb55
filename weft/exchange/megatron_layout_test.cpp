#include "weft/exchange/megatron_layout.h"

#include <random>

#include <gtest/gtest.h>

#include "tests/support/draws.h"

namespace weft {
namespace {

using Layers = std::vector<std::vector<int64_t>>;

/// The stages that a layout means, spelled out, by the documented rules: commas mean nothing, (x)*n and x*n repeat, and
/// bars divide stages.
std::vector<std::string> stages_of(std::string text) {
  std::erase(text, ',');
  std::string flat;
  std::string group;
  bool in_group = false;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '(' || text[i] == ')') {
      in_group = text[i] == '(';
      if (in_group) group.clear();
    } else if (text[i] == '*') {
      size_t used = 0;
      const int times = std::stoi(text.substr(i + 1), &used);
      i += used;
      std::string& target = in_group ? group : flat;
      const bool repeats_group = text[i - used - 1] == ')';
      const std::string unit = repeats_group ? group : std::string(1, target.back());
      if (!repeats_group) target.pop_back();
      for (int n = 0; n < times; ++n) target += unit;
    } else {
      (in_group ? group : flat) += text[i];
    }
  }
  std::vector<std::string> stages(1);
  for (const char c : flat) {
    if (c == '|') {
      stages.emplace_back();
    } else {
      stages.back() += c;
    }
  }
  return stages;
}

std::vector<std::string> spelled_out(const Layers& layers) {
  std::vector<std::string> stages;
  for (size_t chunk = 0; chunk < layers.front().size(); ++chunk) {
    for (const auto& rank : layers) stages.emplace_back(static_cast<size_t>(rank[chunk]), 't');
  }
  stages.front().insert(0, "E");
  stages.back() += "L";
  return stages;
}

TEST(MegatronLayout, IsWrittenAsPeopleWriteIt) {
  EXPECT_EQ(megatron_layout({{5}, {11}, {11}, {11}, {11}, {11}, {11}, {9}}), "Et*5|(t*11|)*6,t*9L");
  EXPECT_EQ(megatron_layout({{4}, {8}, {8}, {8}}), "Et*4|t*8|t*8|t*8L");
  EXPECT_EQ(megatron_layout({{0}, {2}, {2}, {2}, {0}}), "E|(tt|)*3,L");
}

TEST(MegatronLayout, GoesThroughTheChunksOfAllRanksInTurn) {
  EXPECT_EQ(megatron_layout({{1, 2}, {3, 4}}), "Et|ttt|tt|t*4L");
}

TEST(MegatronLayout, KeepsEmptyStages) {
  EXPECT_EQ(stages_of(megatron_layout({{3}, {0}, {0}, {0}, {1}})),
            (std::vector<std::string>{"Ettt", "", "", "", "tL"}));
}

TEST(MegatronLayout, MeansThePlacementThatItIsMadeFrom) {
  std::mt19937 random(7);
  for (int round = 0; round < draws(2000); ++round) {
    const size_t pp = 1 + random() % 9;
    const size_t vpp = 1 + random() % 4;
    Layers layers(pp, std::vector<int64_t>(vpp));
    for (auto& row : layers) {
      for (int64_t& count : row) count = static_cast<int64_t>(random() % (round % 2 == 0 ? 3 : 14));
    }
    const std::string text = megatron_layout(layers);
    EXPECT_EQ(stages_of(text), spelled_out(layers)) << text;
  }
}

TEST(MegatronLayout, RefusesAStarThatRepeatsNothing) {
  for (const char* text : {"Et,*3|tL", ",*99999", "(,)*2|t", "()*2", "*3t"})
    EXPECT_FALSE(parse_megatron_layout(text).ok()) << text;
  EXPECT_EQ(parse_megatron_layout("Et,*3|tL").error().problem, "has a star behind nothing to repeat");
  EXPECT_EQ(*parse_megatron_layout("Et*3,|(t,t|)*2,L"), (std::vector<int64_t>{3, 2, 2, 0}));
}

TEST(MegatronLayout, IsRefusedAtOnceHoweverOftenACommaIsRepeated) {
  std::string text;
  for (int i = 0; i < 100'000; ++i) text += ",*99999";  // 10^10 rounds, if each were taken
  EXPECT_FALSE(parse_megatron_layout(text).ok());
}

TEST(MegatronLayout, IsOnlyNeededForUnevenStages) {
  EXPECT_TRUE(is_even({{4, 4}, {4, 4}}));
  EXPECT_FALSE(is_even({{4, 4}, {4, 3}}));
}

}  // namespace
}  // namespace weft
