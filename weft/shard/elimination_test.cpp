#include "weft/shard/elimination.h"

#include <algorithm>
#include <random>

#include <gtest/gtest.h>

#include "tests/support/draws.h"

namespace weft::elimination_test {
namespace {

double cost_of(const std::vector<ChoiceCosts>& tables, const std::vector<size_t>& sizes,
               const std::vector<size_t>& choices) {
  double sum = 0;
  for (const ChoiceCosts& table : tables) {
    size_t place = 0;
    for (const size_t variable : table.variables) place = place * sizes[variable] + choices[variable];
    sum += table.costs[place];
  }
  return sum;
}

/// Every choice of all variables.
template <typename Visit>
void each_assignment(const std::vector<size_t>& sizes, Visit visit) {
  std::vector<size_t> choices(sizes.size(), 0);
  while (true) {
    visit(choices);
    size_t place = sizes.size();
    while (place > 0 && ++choices[place - 1] == sizes[place - 1]) choices[--place] = 0;
    if (place == 0) return;
  }
}

TEST(Elimination, FindsWhatTryingAllFinds) {
  std::mt19937_64 random(5);
  for (int round = 0; round < draws(200); ++round) {
    std::vector<size_t> sizes(2 + random() % 5);
    for (size_t& size : sizes) size = 1 + random() % 3;
    std::vector<ChoiceCosts> tables;
    for (size_t count = 1 + random() % 8; count > 0; --count) {
      ChoiceCosts table;
      size_t entries = 1;
      for (size_t variable = 0; variable < sizes.size(); ++variable) {
        if (table.variables.size() == 3 || random() % 2 == 0) continue;
        table.variables.push_back(variable);
        entries *= sizes[variable];
      }
      std::shuffle(table.variables.begin(), table.variables.end(), random);
      for (size_t i = 0; i < entries; ++i) table.costs.push_back(static_cast<double>(random() % 100));
      tables.push_back(std::move(table));
    }
    std::vector<size_t> kept;
    if (random() % 2 == 0) kept = {sizes.size() - 1, 0};
    Elimination elimination(sizes);
    for (const ChoiceCosts& table : tables) elimination.add(table);
    ASSERT_TRUE(elimination.run(kept));
    double least = 1e9;
    each_assignment(
        sizes, [&](const std::vector<size_t>& choices) { least = std::min(least, cost_of(tables, sizes, choices)); });
    const std::vector<double>& remaining = elimination.remaining().costs;
    const auto best = std::min_element(remaining.begin(), remaining.end());
    EXPECT_EQ(*best, least);
    std::vector<size_t> choices(sizes.size(), 0);
    auto place = static_cast<size_t>(best - remaining.begin());
    for (size_t i = kept.size(); i-- > 0; place /= sizes[kept[i]]) choices[kept[i]] = place % sizes[kept[i]];
    elimination.complete(choices);
    EXPECT_EQ(cost_of(tables, sizes, choices), least);
  }
}

// Takes hours where every variable left is looked at again for each that is taken out.
TEST(Elimination, TakesOutChainsAndStarsOfManyVariables) {
  constexpr size_t kCount = 20'000;
  for (const bool is_star : {false, true}) {
    Elimination elimination(std::vector<size_t>(kCount, 2));
    for (size_t i = 1; i < kCount; ++i) elimination.add({{is_star ? 0 : i - 1, i}, {1, 0, 0, 1}});
    ASSERT_TRUE(elimination.run({}));
    EXPECT_EQ(elimination.remaining().costs.front(), 0);
    std::vector<size_t> choices(kCount, 0);
    elimination.complete(choices);
    for (size_t i = 1; i < kCount; ++i) ASSERT_NE(choices[i], choices[is_star ? 0 : i - 1]);
  }
}

}  // namespace
}  // namespace weft::elimination_test
