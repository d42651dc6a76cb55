#include "weft/search/recompute_choice.h"

#include <algorithm>
#include <functional>
#include <random>

#include <gtest/gtest.h>

namespace weft {
namespace {

/// Calls `visit` with the added time and the saved memory of every choice.
void for_every_choice(const std::vector<RecomputeKind>& kinds, const std::function<void(double, double)>& visit,
                      size_t kind = 0, double adds_ms = 0, double saves_gib = 0) {
  if (kind == kinds.size()) return visit(adds_ms, saves_gib);
  for (int32_t n = 0; n <= kinds[kind].num_blocks; ++n) {
    for_every_choice(kinds, visit, kind + 1, adds_ms + n * kinds[kind].adds_ms, saves_gib + n * kinds[kind].saves_gib);
  }
}

std::vector<RecomputeKind> random_kinds(std::mt19937_64& random) {
  std::vector<RecomputeKind> kinds(1 + random() % 4);
  for (RecomputeKind& kind : kinds) {
    kind = {.num_blocks = static_cast<int32_t>(random() % 6),
            .adds_ms = static_cast<double>(random() % 30) / 10,
            .saves_gib = static_cast<double>(random() % 20) / 10};
  }
  return kinds;
}

TEST(RecomputeChoice, TheLeastIsTheLeastOfAll) {
  std::mt19937_64 random(5);
  int num_possible = 0;
  for (int trial = 0; trial < 2000; ++trial) {
    const std::vector<RecomputeKind> kinds = random_kinds(random);
    const double need_gib = static_cast<double>(random() % 100) / 10;
    double least_ms = 1e9;
    for_every_choice(kinds, [&](double adds_ms, double saves_gib) {
      if (saves_gib >= need_gib - 1e-9) least_ms = std::min(least_ms, adds_ms);
    });
    const auto found = choose_least(kinds, need_gib);
    ASSERT_EQ(found.has_value(), least_ms < 1e9) << "trial " << trial;
    if (!found) continue;
    ++num_possible;
    EXPECT_NEAR(found->adds_ms, least_ms, 1e-9) << "trial " << trial;
    EXPECT_GE(found->saves_gib, need_gib - 1e-9) << "trial " << trial;
  }
  EXPECT_GT(num_possible, 500);
}

TEST(RecomputeChoice, TheFrontHasTheLeastForEveryNeed) {
  std::mt19937_64 random(6);
  for (int trial = 0; trial < 300; ++trial) {
    const std::vector<RecomputeKind> kinds = random_kinds(random);
    const std::vector<RecomputeChoice> front = choose_pareto(kinds, 1'000'000);
    for (size_t i = 1; i < front.size(); ++i) {
      EXPECT_GE(front[i].adds_ms, front[i - 1].adds_ms);
      EXPECT_GT(front[i].saves_gib, front[i - 1].saves_gib);
    }
    for_every_choice(kinds, [&](double adds_ms, double saves_gib) {
      bool is_covered = false;
      for (const RecomputeChoice& choice : front)
        is_covered |= choice.adds_ms <= adds_ms + 1e-9 && choice.saves_gib >= saves_gib - 1e-9;
      EXPECT_TRUE(is_covered) << "trial " << trial << ": " << adds_ms << " ms for " << saves_gib << " GiB";
    });
  }
}

TEST(RecomputeChoice, NothingIsRecomputedWithoutNeedAndNothingThatSavesNothing) {
  const std::vector<RecomputeKind> kinds = {{.num_blocks = 3, .adds_ms = 0, .saves_gib = 1},
                                            {.num_blocks = 2, .adds_ms = 1, .saves_gib = 0}};
  EXPECT_EQ(choose_least(kinds, 0)->blocks, (std::vector<int32_t>{0, 0}));
  EXPECT_EQ(choose_least(kinds, 2)->blocks, (std::vector<int32_t>{2, 0}));
  EXPECT_EQ(choose_all(kinds).blocks, (std::vector<int32_t>{3, 0}));
}

}  // namespace
}  // namespace weft
