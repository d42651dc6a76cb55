#include "weft/search/balance.h"

#include <algorithm>
#include <chrono>
#include <functional>
#include <optional>
#include <random>

#include <gtest/gtest.h>

#include "weft/schedule/lowering.h"
#include "weft/search/chain_search.h"
#include "weft/search/chain_source.h"
#include "weft/simulate/run_schedule.h"
#include "weft/simulate/walk_memory.h"

namespace weft {
namespace {

/// The same problem without any of the solver's ideas: every split of the chain, every number of recomputed blocks of
/// every kind on every stage; time from the simulator, memory from a walk over the schedule's rows.
class BruteForce {
 public:
  explicit BruteForce(const BalanceCosts& costs)
      : costs_(costs),
        schedule_(*generate_schedule(costs.schedule, costs.shape)),
        lowered_(*lower_schedule(schedule_)),
        stages_(static_cast<size_t>(costs.num_stages())) {
    place(0, 0);
  }

  std::optional<double> best_ms() const { return best_ms_; }

 private:
  struct Stage {
    double forward = 0, input = 0, weight = 0;
    StageMemory memory;
  };

  void place(size_t stage, int32_t first) {
    if (stage == stages_.size()) {
      if (first == costs_.num_blocks()) evaluate();
      return;
    }
    for (int32_t end = first + 1; end <= costs_.num_blocks(); ++end) {
      std::vector<int32_t> blocks(costs_.chain.size(), 0);
      for (int32_t block = first; block < end; ++block) ++blocks[kind_of(block)];
      std::vector<int32_t> recomputed(blocks.size(), 0);
      recompute(stage, end, blocks, recomputed, 0);
    }
  }

  size_t kind_of(int32_t block) const {
    size_t kind = 0;
    while (block >= costs_.chain[kind].count) block -= costs_.chain[kind++].count;
    return kind;
  }

  void recompute(size_t stage, int32_t end, const std::vector<int32_t>& blocks, std::vector<int32_t>& recomputed,
                 size_t kind) {
    if (kind == blocks.size()) {
      stages_[stage] = sum_up(stage, blocks, recomputed);
      place(stage + 1, end);
      return;
    }
    for (int32_t n = 0; n <= blocks[kind]; ++n) {
      recomputed[kind] = n;
      recompute(stage, end, blocks, recomputed, kind + 1);
    }
    recomputed[kind] = 0;
  }

  Stage sum_up(size_t stage, const std::vector<int32_t>& blocks, const std::vector<int32_t>& recomputed) const {
    Stage sum;
    const auto add_extra = [&](const StageExtra& extra) {
      sum.forward += extra.times.forward_ms;
      sum.input += extra.times.backward_input_ms;
      sum.weight += extra.times.backward_weight_ms;
      sum.memory.static_bytes += extra.static_gib;
    };
    if (stage == 0) add_extra(costs_.first_stage);
    if (stage + 1 == stages_.size()) add_extra(costs_.last_stage);
    for (size_t k = 0; k < blocks.size(); ++k) {
      const BlockKind& kind = costs_.chain[k];
      sum.forward += blocks[k] * kind.times.forward_ms;
      sum.input += blocks[k] * kind.times.backward_input_ms + recomputed[k] * kind.times.forward_ms;
      sum.weight += blocks[k] * kind.times.backward_weight_ms;
      sum.memory.activation_bytes += blocks[k] * kind.activation_gib - recomputed[k] * kind.recompute_saves_gib;
      sum.memory.static_bytes += blocks[k] * kind.static_gib;
    }
    return sum;
  }

  void evaluate() {
    std::vector<StageMemory> memory;
    std::vector<double> forward, input, weight;
    for (const Stage& stage : stages_) {
      memory.push_back(stage.memory);
      forward.push_back(stage.forward);
      input.push_back(stage.input);
      weight.push_back(stage.weight);
    }
    for (const double peak : peak_memory_bytes(schedule_, memory)) {
      if (peak > costs_.memory_gib + 1e-7) return;
    }
    const auto table = [&](const std::vector<double>& values) {
      return CostTable(schedule_.num_stages(), schedule_.num_microbatches, values);
    };
    const double makespan =
        run_schedule(lowered_, {table(forward), table(input), table(weight), CostTable(costs_.p2p_ms)}).makespan_ms;
    if (!best_ms_ || makespan < *best_ms_) best_ms_ = makespan;
  }

  const BalanceCosts& costs_;
  Schedule schedule_, lowered_;
  std::vector<Stage> stages_;
  std::optional<double> best_ms_;
};

/// Instances with few blocks and a memory limit around what they need; tenths of units, so that ties and exact fits
/// happen.
class RandomInstances {
 public:
  explicit RandomInstances(uint64_t seed) : random_(seed) {}

  BalanceCosts next(ScheduleName schedule, int64_t most_pp, int64_t vpp, int32_t most_blocks) {
    BalanceCosts costs;
    costs.schedule = schedule;
    costs.shape = {.pp = whole(1, most_pp), .vpp = vpp, .microbatches = whole(1, 7)};
    costs.p2p_ms = whole(0, 2) == 0 ? 0 : tenths(0, 15);
    const int64_t num_kinds = whole(1, 3);
    const bool is_split = kind_of(schedule).splits_backward;
    for (int64_t k = 0; k < num_kinds; ++k) {
      BlockKind& kind = costs.chain.emplace_back();
      kind.name = std::string(1, static_cast<char>('a' + k));
      kind.count = static_cast<int32_t>(whole(1, most_blocks / num_kinds));
      kind.times = times(is_split, 1, 60);
      kind.activation_gib = tenths(0, 30);
      kind.recompute_saves_gib = std::min(kind.activation_gib, tenths(0, 30));
      kind.static_gib = tenths(0, 30);
    }
    while (costs.num_blocks() < costs.shape.pp * vpp) ++costs.chain.front().count;
    if (whole(0, 1) == 0) costs.first_stage = {times(is_split, 0, 40), tenths(0, 20)};
    if (whole(0, 1) == 0) costs.last_stage = {times(is_split, 0, 40), tenths(0, 20)};
    double all_gib = 0;
    for (const BlockKind& kind : costs.chain)
      all_gib += kind.count * (kind.static_gib + kind.activation_gib * static_cast<double>(costs.shape.pp));
    if (whole(0, 4) > 0) costs.memory_gib = all_gib / static_cast<double>(costs.shape.pp) * tenths(3, 14);
    return costs;
  }

  int64_t whole(int64_t low, int64_t high) { return std::uniform_int_distribution<int64_t>(low, high)(random_); }
  double tenths(int64_t low, int64_t high) { return static_cast<double>(whole(low, high)) / 10; }

 private:
  WorkTimes times(bool is_split, int64_t low, int64_t high) {
    return {tenths(low, high), tenths(low, high), is_split ? tenths(low, high) : 0};
  }

  std::mt19937_64 random_;
};

/// Solves random instances both ways; returns how many had a placement.
int compare(ScheduleName schedule, int64_t vpp, int64_t most_pp, int32_t most_blocks, int num_instances,
            uint64_t seed) {
  RandomInstances instances(seed);
  int num_feasible = 0;
  for (int i = 0; i < num_instances; ++i) {
    const BalanceCosts costs = instances.next(schedule, most_pp, vpp, most_blocks);
    const std::optional<double> expected = BruteForce(costs).best_ms();
    const Result<BalancedPipeline> found = balance(costs);
    EXPECT_EQ(found.ok(), expected.has_value()) << name_of(schedule) << " instance " << i;
    if (!found || !expected) {
      if (!found) {
        EXPECT_EQ(found.error().kind, ErrorKind::kJob) << found.error().message();
      }
      continue;
    }
    ++num_feasible;
    EXPECT_NEAR(found->makespan_ms, *expected, 1e-6) << name_of(schedule) << " instance " << i;
    EXPECT_TRUE(found->is_optimal) << name_of(schedule) << " instance " << i;
    for (const double gib : found->memory_gib) EXPECT_LE(gib, costs.memory_gib + 1e-6);
  }
  return num_feasible;
}

TEST(Balance, FindsTheOptimumOfRandom1f1bInstances) {
  EXPECT_GT(compare(ScheduleName::k1f1b, 1, 4, 8, 600, 1), 300);
}

TEST(Balance, FindsTheOptimumOfRandomGpipeInstances) {
  EXPECT_GT(compare(ScheduleName::kGpipe, 1, 4, 8, 150, 2), 50);
}

TEST(Balance, FindsTheOptimumOfRandomInterleavedInstances) {
  EXPECT_GT(compare(ScheduleName::kInterleaved1f1b, 2, 2, 7, 150, 3), 50);
  EXPECT_GT(compare(ScheduleName::kInterleaved1f1b, 3, 2, 6, 50, 4), 15);
}

TEST(Balance, FindsTheOptimumOfRandomZeroBubbleInstances) {
  EXPECT_GT(compare(ScheduleName::kZbH1, 1, 4, 8, 150, 5), 50);
  EXPECT_GT(compare(ScheduleName::kZbV, 2, 3, 7, 150, 6), 50);
}

TEST(Balance, FindsTheOptimumWhenEveryBlockIsOfItsOwnKind) {
  RandomInstances instances(8);
  for (int i = 0; i < 100; ++i) {
    BalanceCosts costs =
        instances.next(i % 2 == 0 ? ScheduleName::k1f1b : ScheduleName::kInterleaved1f1b, 2, i % 2 == 0 ? 1 : 2, 6);
    std::vector<BlockKind> chain;
    for (const BlockKind& kind : costs.chain) {
      for (int32_t block = 0; block < kind.count; ++block) {
        chain.push_back(kind);
        chain.back().count = 1;
        chain.back().times.forward_ms += instances.tenths(0, 9);
        chain.back().recompute_saves_gib = kind.recompute_saves_gib * instances.tenths(5, 10);
      }
    }
    costs.chain = std::move(chain);
    const std::optional<double> expected = BruteForce(costs).best_ms();
    const Result<BalancedPipeline> found = balance(costs);
    ASSERT_EQ(found.ok(), expected.has_value()) << "instance " << i;
    if (!found) continue;
    EXPECT_NEAR(found->makespan_ms, *expected, 1e-6) << "instance " << i;
    EXPECT_TRUE(found->is_optimal) << "instance " << i;
  }
}

BalanceCosts vision_language(int64_t pp, int64_t microbatches, double memory_gib, int32_t num_vit, int32_t num_llm) {
  return {
      .schedule = ScheduleName::k1f1b,
      .shape = {.pp = pp, .vpp = 1, .microbatches = microbatches},
      .p2p_ms = 0.7,
      .memory_gib = memory_gib,
      .chain = {{"vit", num_vit, {3.1, 6.2, 0}, 0.35, 0.33, 0.17}, {"llm", num_llm, {9.7, 19.6, 0}, 0.92, 0.88, 1.75}},
      .first_stage = {{1.5, 1.0, 0}, 2.5},
      .last_stage = {{11.0, 21.0, 0}, 2.6}};
}

TEST(Balance, KnownInstancesHaveTheirProvenOptima) {
  // Both were solved as mixed-integer programs with HiGHS.
  const Result<BalancedPipeline> large = balance(vision_language(8, 32, 56, 32, 80));
  ASSERT_TRUE(large.ok());
  EXPECT_NEAR(large->makespan_ms, 14631.4, 1e-6);
  EXPECT_TRUE(large->is_optimal);
  const Result<BalancedPipeline> small = balance(vision_language(4, 8, 24, 8, 16));
  ASSERT_TRUE(small.ok());
  EXPECT_NEAR(small->makespan_ms, 1632.5, 1e-6);
  EXPECT_TRUE(small->is_optimal);
}

TEST(Balance, MoreMemoryIsNeverSlower) {
  double last_ms = 1e9;
  for (double gib = 40; gib <= 120; gib += 8) {
    const Result<BalancedPipeline> found = balance(vision_language(8, 16, gib, 32, 80));
    if (!found) continue;
    EXPECT_TRUE(found->is_optimal);
    EXPECT_LE(found->makespan_ms, last_ms * (1 + 1e-9)) << gib;
    last_ms = found->makespan_ms;
  }
  EXPECT_LT(last_ms, 1e9);
}

TEST(Balance, BlocksStayInOrderAndAreAllPlaced) {
  BalanceCosts costs = vision_language(4, 8, 30, 8, 16);
  costs.schedule = ScheduleName::kInterleaved1f1b;
  costs.shape.vpp = 2;
  const Result<BalancedPipeline> found = balance(costs);
  ASSERT_TRUE(found.ok()) << found.error().message();
  int32_t num_vit = 0, num_llm = 0;
  for (const BalancedStage& stage : found->stages) {
    EXPECT_GE(stage.blocks[0] + stage.blocks[1], 1);
    if (stage.blocks[0] > 0) {
      EXPECT_EQ(num_llm, 0) << "vit blocks come first";
    }
    num_vit += stage.blocks[0];
    num_llm += stage.blocks[1];
    EXPECT_LE(stage.recomputed[0], stage.blocks[0]);
    EXPECT_LE(stage.recomputed[1], stage.blocks[1]);
  }
  EXPECT_EQ(num_vit, 8);
  EXPECT_EQ(num_llm, 16);
  EXPECT_EQ(found->stages_of_rank, (std::vector<std::vector<int32_t>>{{0, 4}, {1, 5}, {2, 6}, {3, 7}}));
}

/// The figure between two words of a message.
double figure_after(const std::string& message, const std::string& words) {
  const size_t at = message.find(words);
  EXPECT_NE(at, std::string::npos) << message;
  return at == std::string::npos ? 0 : std::stod(message.substr(at + words.size()));
}

TEST(Balance, WhatDoesNotFitSaysTheSmallestLimitThatDoes) {
  RandomInstances instances(7);
  int num_refused = 0;
  for (const auto& [schedule, vpp] : {std::pair{ScheduleName::k1f1b, 1},
                                      {ScheduleName::kGpipe, 1},
                                      {ScheduleName::kInterleaved1f1b, 2},
                                      {ScheduleName::kZbV, 2}}) {
    for (int i = 0; i < 60; ++i) {
      BalanceCosts costs = instances.next(schedule, vpp == 1 ? 4 : 2, vpp, 7);
      const Result<BalancedPipeline> found = balance(costs);
      if (found) continue;
      ++num_refused;
      const std::string message = found.error().message();
      BalanceCosts again = costs;
      again.memory_gib = figure_after(message, "the smallest memory_gib that fits is ");
      EXPECT_TRUE(balance(again).ok()) << message;
      again.memory_gib -= 1e-5;
      EXPECT_FALSE(BruteForce(again).best_ms().has_value()) << message;
      again = costs;
      const bool has_pp = message.find("the smallest larger pp that fits is ") != std::string::npos;
      const auto end = has_pp ? static_cast<int64_t>(figure_after(message, "the smallest larger pp that fits is "))
                              : costs.num_blocks() / vpp + 1;
      for (again.shape.pp = costs.shape.pp + 1; again.shape.pp < end; ++again.shape.pp)
        EXPECT_FALSE(balance(again).ok()) << message << " pp " << again.shape.pp;
      if (has_pp) {
        EXPECT_TRUE(balance(again).ok()) << message;
      }
    }
  }
  EXPECT_GT(num_refused, 30);
}

TEST(Balance, EndsInTimeWhereListingTheWaysToFillStagesTakesLonger) {
  // Each run of blocks of so many kinds has thousands of recomputations, and there are 10,000 runs.
  BalanceCosts costs{.memory_gib = 40};
  costs.schedule = ScheduleName::kInterleaved1f1b;
  costs.shape = {.pp = 8, .vpp = 16, .microbatches = 16};
  for (int k = 0; k < 256; ++k) {
    costs.chain.push_back({.name = std::to_string(k),
                           .count = 1,
                           .times = {1.0 + 0.01 * (k % 7), 2, 0},
                           .activation_gib = 0.1 + 0.003 * (k % 11),
                           .recompute_saves_gib = 0.05 + 0.002 * (k % 5)});
  }
  constexpr double kLimit_s = 0.5;
  const auto start = std::chrono::steady_clock::now();
  const Result<BalancedPipeline> found = balance(costs, {.time_limit_s = kLimit_s});
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(10));
  if (!found) {
    EXPECT_NE(found.error().problem.find("in the time given"), std::string::npos) << found.error().message();
  }
}

TEST(Balance, APlacementThatHasNoRoomInMemoryIsRefused) {
  BalanceCosts costs;
  costs.schedule = ScheduleName::k1f1b;
  costs.shape = {.pp = 4, .vpp = 1, .microbatches = 4};
  costs.chain.push_back({.name = "a", .count = 8, .times = {1, 2, 0}});
  ChainSource source(costs, {4, 3, 2, 1}, RecomputeOptions::kLeast);
  const StageOptions options = *StageOptions::make(source, {});
  const ChainSearch search(options);
  EXPECT_TRUE(search.has_room(1'000));
  EXPECT_FALSE(search.has_room(10'000'000));
}

TEST(StageOptions, AreNotListedBehindTheDeadline) {
  BalanceCosts costs;
  costs.shape = {.pp = 4, .vpp = 1, .microbatches = 4};
  costs.chain.push_back({.name = "a", .count = 64, .times = {1, 2, 0}});
  ChainSource source(costs, {4, 3, 2, 1}, RecomputeOptions::kLeast);
  EXPECT_TRUE(StageOptions::make(source, {}).ok());
  const Result<StageOptions> late = StageOptions::make(source, {.deadline = Deadline(-1.0)});
  ASSERT_FALSE(late.ok());
  EXPECT_EQ(late.error().kind, ErrorKind::kJob);
  EXPECT_NE(late.error().problem.find("in the time given"), std::string::npos);
}

}  // namespace
}  // namespace weft
