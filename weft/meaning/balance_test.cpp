#include "weft/meaning/balance.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>
#include <random>
#include <set>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "weft/base/check.h"

namespace weft {
namespace {

constexpr BalancedModules kBoth{.llm = true, .encoders = true};
constexpr double kSlack = 1 + 1e-9;

std::string text_of(const BatchShape& shape) {
  std::string text =
      fmt::format("dp {}, {} microbatches of {}", shape.llm.data_parallel, shape.llm.microbatches, shape.llm.mbs);
  for (const auto& [kind, encoder] : shape.encoders)
    text += fmt::format(", {} dp {} scale {}", name_of(kind), encoder.data_parallel, encoder.mbs_scale);
  return text;
}

/// Lengths as data sets have them: many short, few long.
std::vector<double> long_tailed(std::mt19937_64& random, int64_t count) {
  std::lognormal_distribution<double> length(6, 1);
  std::vector<double> costs(static_cast<size_t>(count));
  for (double& cost : costs) {
    const double tokens = std::round(length(random));
    cost = tokens + tokens * tokens / 8192;
  }
  return costs;
}

/// The same with a third of the samples without media.
std::vector<double> of_media(std::mt19937_64& random, int64_t count) {
  std::vector<double> costs = long_tailed(random, count);
  for (double& cost : costs) cost = random() % 3 == 0 ? 0 : cost;
  return costs;
}

/// All samples of a dealing, in the order of the pipeline: microbatch after microbatch, rank after rank.
std::vector<int64_t> llm_order(const BatchAssignment& assignment) {
  std::vector<int64_t> order;
  for (size_t microbatch = 0; microbatch < assignment.llm.front().size(); ++microbatch) {
    for (const auto& rank : assignment.llm) order.insert(order.end(), rank[microbatch].begin(), rank[microbatch].end());
  }
  return order;
}

void expect_legal(const BatchShape& shape, const BatchAssignment& assignment) {
  const BatchOrder& llm = shape.llm;
  ASSERT_EQ(static_cast<int64_t>(assignment.llm.size()), llm.data_parallel);
  for (const auto& rank : assignment.llm) {
    ASSERT_EQ(static_cast<int64_t>(rank.size()), llm.microbatches);
    for (const auto& microbatch : rank) ASSERT_EQ(static_cast<int64_t>(microbatch.size()), llm.mbs);
  }
  const std::vector<int64_t> order = llm_order(assignment);
  ASSERT_EQ(std::set<int64_t>(order.begin(), order.end()).size(), static_cast<size_t>(llm.size()));
  ASSERT_EQ(*std::max_element(order.begin(), order.end()), llm.size() - 1);
  ASSERT_EQ(assignment.encoders.size(), shape.encoders.size());
  for (const auto& [kind, encoder] : shape.encoders) {
    const BatchAssignment::Shares& shares = assignment.encoders.at(kind);
    ASSERT_EQ(static_cast<int64_t>(shares.size()), encoder.data_parallel);
    const int64_t size = encoder.mbs_scale * llm.mbs * encoder.data_parallel;
    const int64_t macros = (llm.size() + size - 1) / size;
    for (int64_t macro = 0; macro < macros; ++macro) {
      std::vector<int64_t> found;
      for (const auto& rank : shares) {
        ASSERT_EQ(static_cast<int64_t>(rank.size()), macros);
        const auto& own = rank[static_cast<size_t>(macro)];
        found.insert(found.end(), own.begin(), own.end());
      }
      std::vector<int64_t> wanted(order.begin() + macro * size,
                                  order.begin() + std::min((macro + 1) * size, llm.size()));
      std::sort(found.begin(), found.end());
      std::sort(wanted.begin(), wanted.end());
      ASSERT_EQ(found, wanted) << "macro batch " << macro;
    }
  }
}

TEST(AssignBalanced, NothingToBalanceIsTheBatchsOrder) {
  const BatchShape shape{.llm = {.data_parallel = 2, .microbatches = 3, .mbs = 2},
                         .encoders = {{ModuleKind::kVision, {.data_parallel = 3, .mbs_scale = 1}},
                                      {ModuleKind::kAudio, {.data_parallel = 1, .mbs_scale = 3}}}};
  EXPECT_EQ(assign_balanced(shape, {}, {}), assign_in_order(shape));
  const std::vector<double> equal(12, 2.5), zero(12, 0);
  EXPECT_EQ(assign_balanced(shape, kBoth,
                            {.llm = equal, .encoders = {{ModuleKind::kVision, equal}, {ModuleKind::kAudio, zero}}}),
            assign_in_order(shape))
      << "equal costs";
}

TEST(AssignBalanced, APerfectDealIsFound) {
  const BatchShape shape{.llm = {.data_parallel = 2, .microbatches = 2, .mbs = 2}, .encoders = {}};
  const std::vector<double> costs = {9, 9, 1, 1, 8, 8, 2, 2};
  const BatchAssignment assignment = assign_balanced(shape, {.llm = true}, {.llm = costs});
  const LlmSpread spread = llm_spread(assignment.llm, costs);
  EXPECT_EQ(spread.busiest_rank, 20);
  EXPECT_EQ(spread.longest_microbatch, 10);
  EXPECT_EQ(spread.longest_in_turn, 20);
  const LlmSpread given = llm_spread(assign_in_order(shape).llm, costs);
  EXPECT_EQ(given.busiest_rank, 34);
  EXPECT_EQ(given.longest_microbatch, 18);
}

TEST(AssignBalanced, EverySampleHasOnePlaceAndNothingIsWorseThanTheBatchsOrder) {
  std::mt19937_64 random(11);
  const auto below = [&](int64_t n) { return static_cast<int64_t>(random() % static_cast<uint64_t>(n)); };
  int better_ranks = 0, better_turns = 0, cases = 0;
  for (int trial = 0; trial < 3000; ++trial) {
    BatchShape shape{.llm = {.data_parallel = 1 + below(6), .microbatches = 1 + below(6), .mbs = 1 + below(4)},
                     .encoders = {}};
    BatchCosts costs{.llm = long_tailed(random, shape.llm.size()), .encoders = {}};
    for (const ModuleKind kind : {ModuleKind::kVision, ModuleKind::kAudio}) {
      if (below(3) == 0) continue;
      shape.encoders[kind] = {.data_parallel = 1 + below(8), .mbs_scale = 1 + below(4)};
      costs.encoders[kind] = of_media(random, shape.llm.size());
    }
    SCOPED_TRACE(text_of(shape));
    const BalancedModules which{.llm = below(4) != 0, .encoders = below(4) != 0, .ranks_in_lockstep = below(2) == 0};
    const BatchAssignment assignment = assign_balanced(shape, which, costs);
    ASSERT_NO_FATAL_FAILURE(expect_legal(shape, assignment));
    ASSERT_EQ(assignment, assign_balanced(shape, which, costs)) << "the same again";
    const LlmSpread now = llm_spread(assignment.llm, costs.llm);
    const LlmSpread given = llm_spread(assign_in_order(shape).llm, costs.llm);
    ASSERT_LE(now.busiest_rank, given.busiest_rank * kSlack);
    ASSERT_LE(now.longest_in_turn, given.longest_in_turn * kSlack);
    ASSERT_LE(now.longest_microbatch, given.longest_microbatch * kSlack);
    if (which.llm && shape.llm.data_parallel > 1 && shape.llm.microbatches > 1) {
      ++cases;
      better_ranks += now.busiest_rank < given.busiest_rank / kSlack ? 1 : 0;
      better_turns += now.longest_in_turn < given.longest_in_turn / kSlack ? 1 : 0;
    }
    if (!which.llm) {
      ASSERT_EQ(assignment.llm, assign_in_order(shape).llm);
    }
    // The encoder's macro batches hold the same samples whether their ranks are balanced or not.
    const BatchAssignment unbalanced =
        assign_balanced(shape, {.llm = which.llm, .ranks_in_lockstep = which.ranks_in_lockstep}, costs);
    for (const auto& [kind, own] : costs.encoders) {
      ASSERT_LE(encoder_spread(assignment.encoders.at(kind), own),
                encoder_spread(unbalanced.encoders.at(kind), own) * kSlack);
    }
  }
  // Not worse is easy by doing nothing; nearly always it must be better.
  EXPECT_GT(better_ranks, 0.9 * cases);
  EXPECT_GT(better_turns, 0.9 * cases);
}

TEST(AssignBalanced, LargeBatchesAreDealtToo) {
  std::mt19937_64 random(15);
  for (const bool in_lockstep : {false, true}) {
    const BatchShape shape{.llm = {.data_parallel = 128, .microbatches = 6, .mbs = 3},
                           .encoders = {{ModuleKind::kVision, {.data_parallel = 100, .mbs_scale = 4}}}};
    const BatchCosts costs{.llm = long_tailed(random, shape.llm.size()),
                           .encoders = {{ModuleKind::kVision, of_media(random, shape.llm.size())}}};
    const BatchAssignment assignment =
        assign_balanced(shape, {.llm = true, .encoders = true, .ranks_in_lockstep = in_lockstep}, costs);
    ASSERT_NO_FATAL_FAILURE(expect_legal(shape, assignment));
    // Nobody can have less than the mean, nor than the largest sample.
    const auto least = [](const std::vector<double>& own, int64_t ranks) {
      return std::max(std::accumulate(own.begin(), own.end(), 0.0) / static_cast<double>(ranks),
                      *std::max_element(own.begin(), own.end()));
    };
    const LlmSpread now = llm_spread(assignment.llm, costs.llm);
    EXPECT_LT(now.busiest_rank, (in_lockstep ? 1.5 : 1.1) * least(costs.llm, 128));
    EXPECT_LT(now.longest_in_turn, 0.5 * llm_spread(assign_in_order(shape).llm, costs.llm).longest_in_turn);
    const std::vector<double>& media = costs.encoders.at(ModuleKind::kVision);
    const std::vector<int64_t> order = llm_order(assignment);
    double bound = 0;
    for (size_t first = 0; first < order.size(); first += 1200) {
      std::vector<double> macro;
      for (size_t i = first; i < std::min(first + 1200, order.size()); ++i)
        macro.push_back(media[static_cast<size_t>(order[i])]);
      bound += least(macro, 100);
    }
    EXPECT_LT(encoder_spread(assignment.encoders.at(ModuleKind::kVision), media), 1.05 * bound);
  }
}

/// The smallest busiest bin over all ways to put items into bins, each of exactly `size` items (0: any number).
double best_makespan(const std::vector<double>& costs, size_t bins, size_t size) {
  double best = std::accumulate(costs.begin(), costs.end(), 0.0);
  std::vector<double> sums(bins, 0);
  std::vector<size_t> counts(bins, 0);
  const std::function<void(size_t)> place = [&](size_t item) {
    if (item == costs.size()) {
      best = std::min(best, *std::max_element(sums.begin(), sums.end()));
      return;
    }
    for (size_t bin = 0; bin < bins; ++bin) {
      const bool is_full = size > 0 && counts[bin] == size;
      if (is_full || sums[bin] + costs[item] >= best) continue;
      sums[bin] += costs[item];
      ++counts[bin];
      place(item + 1);
      sums[bin] -= costs[item];
      --counts[bin];
      if (counts[bin] == 0) break;  // empty bins are alike
    }
  };
  place(0);
  return best;
}

TEST(AssignBalanced, RanksInLockstepGetLikeMicrobatchesAndOthersLikeSums) {
  const BatchShape shape{.llm = {.data_parallel = 64, .microbatches = 8, .mbs = 1}, .encoders = {}};
  std::mt19937_64 random(14);
  const std::vector<double> costs = long_tailed(random, shape.llm.size());
  const LlmSpread apart = llm_spread(assign_balanced(shape, {.llm = true}, {.llm = costs}).llm, costs);
  const LlmSpread together =
      llm_spread(assign_balanced(shape, {.llm = true, .ranks_in_lockstep = true}, {.llm = costs}).llm, costs);
  EXPECT_LT(apart.busiest_rank, together.busiest_rank);
  EXPECT_LT(together.longest_in_turn, apart.longest_in_turn);
}

TEST(AssignBalanced, TheBusiestRankIsNearTheBestThatBruteForceFinds) {
  std::mt19937_64 random(12);
  double worst = 1, total = 0;
  int cases = 0;
  for (const BatchOrder& order :
       {BatchOrder{2, 2, 1}, {2, 3, 1}, {2, 4, 1}, {3, 2, 1}, {3, 3, 1}, {2, 2, 2}, {3, 2, 2}, {4, 3, 1}, {2, 3, 2}}) {
    for (int trial = 0; trial < 100; ++trial) {
      const bool is_small = trial % 2 == 0;
      std::vector<double> costs = long_tailed(random, order.size());
      if (is_small) {
        for (double& cost : costs) cost = static_cast<double>(random() % 8);
      }
      const BalancedModules which{.llm = true, .ranks_in_lockstep = trial % 3 == 0};
      const BatchAssignment assignment = assign_balanced({.llm = order, .encoders = {}}, which, {.llm = costs});
      const double best = best_makespan(costs, static_cast<size_t>(order.data_parallel),
                                        static_cast<size_t>(order.microbatches * order.mbs));
      const double found = llm_spread(assignment.llm, costs).busiest_rank;
      ASSERT_GE(found, best / kSlack);
      ASSERT_LE(found, best * 4 / 3 * kSlack) << fmt::format("{}", fmt::join(costs, " "));
      if (best == 0) continue;
      worst = std::max(worst, found / best);
      total += found / best;
      ++cases;
    }
  }
  EXPECT_LT(total / cases, 1.02) << "the worst was " << worst;
  RecordProperty("worst_ratio", fmt::format("{:.4f}", worst));
  RecordProperty("mean_ratio", fmt::format("{:.5f}", total / cases));
}

TEST(AssignBalanced, TheBusiestEncoderRankIsNearTheBestThatBruteForceFinds) {
  std::mt19937_64 random(13);
  double worst = 1, total = 0;
  int cases = 0;
  for (int trial = 0; trial < 600; ++trial) {
    const auto ranks = static_cast<int64_t>(2 + random() % 3), samples = static_cast<int64_t>(2 + random() % 9);
    const BatchShape shape{.llm = {.data_parallel = 1, .microbatches = samples, .mbs = 1},
                           .encoders = {{ModuleKind::kVision, {.data_parallel = ranks, .mbs_scale = samples}}}};
    const std::vector<double> costs = of_media(random, samples);
    const BatchAssignment assignment =
        assign_balanced(shape, {.encoders = true}, {.llm = {}, .encoders = {{ModuleKind::kVision, costs}}});
    const double best = best_makespan(costs, static_cast<size_t>(ranks), 0);
    const double found = encoder_spread(assignment.encoders.at(ModuleKind::kVision), costs);
    ASSERT_LE(found, best * 4 / 3 * kSlack) << fmt::format("{}", fmt::join(costs, " "));
    if (best == 0) continue;
    worst = std::max(worst, found / best);
    total += found / best;
    ++cases;
  }
  EXPECT_LT(total / cases, 1.02) << "the worst was " << worst;
  RecordProperty("worst_ratio", fmt::format("{:.4f}", worst));
  RecordProperty("mean_ratio", fmt::format("{:.5f}", total / cases));
}

TEST(AssignBalanced, SamplesWithoutMediaAreSpreadToo) {
  const BatchShape shape{.llm = {.data_parallel = 1, .microbatches = 8, .mbs = 1},
                         .encoders = {{ModuleKind::kVision, {.data_parallel = 2, .mbs_scale = 4}}}};
  const std::vector<double> costs = {5, 5, 0, 0, 0, 0, 0, 0};
  const auto shares =
      assign_balanced(shape, {.encoders = true}, {.llm = {}, .encoders = {{ModuleKind::kVision, costs}}})
          .encoders.at(ModuleKind::kVision);
  EXPECT_EQ(shares, (BatchAssignment::Shares{{{0, 2, 4, 6}}, {{1, 3, 5, 7}}}));
}

TEST(AssignBalanced, CostsMustBeThereForEverySample) {
  const BatchShape shape{.llm = {.data_parallel = 2, .microbatches = 2, .mbs = 1},
                         .encoders = {{ModuleKind::kVision, {}}}};
  EXPECT_THROW(assign_balanced(shape, {.llm = true}, {.llm = {1, 2, 3}}), InternalError);
  EXPECT_THROW(assign_balanced(shape, {.llm = true}, {.llm = {1, 2, 3, NAN}}), InternalError);
  EXPECT_THROW(assign_balanced(shape, {.encoders = true}, {}), InternalError);
}

}  // namespace
}  // namespace weft
