#include "weft/meaning/bridge_routes.h"

#include <algorithm>
#include <random>

#include <gtest/gtest.h>

#include "tests/support/draws.h"
#include "tests/support/mesh/row_route.h"

namespace weft {
namespace {

/// A random bridge and batch: the encoder's tp x cp x dp on some ranks, the llm's on some, which may be the same.
struct DrawnBridge {
  BridgeEnds ends;
  int64_t encoder_cp = 1;
  bool divides_rows = false;  ///< the llm
  BatchAssignment::Shares encoder;
  BatchAssignment::Shares llm;
  std::vector<MediaRowCounts> media;
  RowNumbers numbers;
  std::vector<std::vector<int64_t>> made;   ///< by rank, of the whole batch
  std::vector<std::vector<int64_t>> taken;  ///< the same

  explicit DrawnBridge(std::mt19937_64& random) {
    const auto below = [&](uint64_t bound) { return static_cast<int64_t>(random() % bound); };
    const int64_t encoder_tp = 1 + below(3), encoder_dp = 1 + below(4), llm_tp = 1 + below(3), llm_dp = 1 + below(4);
    encoder_cp = 1 + below(2);
    divides_rows = llm_tp > 1 && below(2) == 0;
    const int64_t num_makers = encoder_tp * encoder_cp * encoder_dp, num_takers = llm_tp * llm_dp;
    const int64_t first_taker = below(2) == 0 ? num_makers : below(static_cast<uint64_t>(num_makers));
    const auto num_ranks = static_cast<size_t>(std::max(num_makers, first_taker + num_takers));
    ends = {.makers = std::vector<int64_t>(num_ranks, -1),
            .takers = std::vector<int64_t>(num_ranks, -1),
            .makers_are_copies = encoder_tp > 1,
            .takers_are_copies = llm_tp > 1 && !divides_rows};
    for (int64_t rank = 0; rank < num_makers; ++rank)
      ends.makers[static_cast<size_t>(rank)] = rank / (encoder_tp * encoder_cp);
    for (int64_t rank = 0; rank < num_takers; ++rank)
      ends.takers[static_cast<size_t>(first_taker + rank)] = rank / llm_tp;

    const int64_t num_samples = below(40), num_macro = 1 + below(3), num_micro = 1 + below(4);
    encoder.assign(static_cast<size_t>(encoder_dp), {});
    llm.assign(static_cast<size_t>(llm_dp), {});
    for (auto& share : encoder) share.resize(static_cast<size_t>(num_macro));
    for (auto& share : llm) share.resize(static_cast<size_t>(num_micro));
    for (int64_t sample = 0; sample < num_samples; ++sample) {
      media.push_back({.image = below(3) == 0 ? 0 : below(8), .video = below(3) == 0 ? below(5) : 0});
      const auto deal = [&](BatchAssignment::Shares& shares) {
        auto& share = shares[random() % shares.size()];
        share[random() % share.size()].push_back(sample);
      };
      deal(encoder);
      deal(llm);
    }
    numbers = RowNumbers(ModuleKind::kVision, encoder, media);
    list_made(encoder_tp, random);
    list_taken(llm_tp, first_taker, random);
  }

  /// Parts of context parallelism, in an order of their own.
  void list_made(int64_t encoder_tp, std::mt19937_64& random) {
    made.resize(ends.makers.size());
    for (size_t maker = 0; maker < encoder.size(); ++maker) {
      const auto first_rank = maker * static_cast<size_t>(encoder_tp * encoder_cp);
      for (int64_t k = 0; k < numbers.num_macro_batches(); ++k) {
        std::vector<std::vector<int64_t>> parts(static_cast<size_t>(encoder_cp));
        const Range rows = numbers.rows(k, static_cast<int64_t>(maker));
        for (int64_t row = rows.begin; row < rows.end; ++row)
          parts[encoder_cp > 1 ? random() % parts.size() : 0].push_back(row);
        for (size_t part = 0; part < parts.size(); ++part) {
          if (encoder_cp > 1 && random() % 2 == 0) std::shuffle(parts[part].begin(), parts[part].end(), random);
          for (int64_t copy = 0; copy < encoder_tp; ++copy) {
            auto& rank = made[first_rank + part * static_cast<size_t>(encoder_tp) + static_cast<size_t>(copy)];
            rank.insert(rank.end(), parts[part].begin(), parts[part].end());
          }
        }
      }
    }
  }

  void list_taken(int64_t llm_tp, int64_t first_taker, std::mt19937_64& random) {
    taken.resize(ends.takers.size());
    for (size_t taker = 0; taker < llm.size(); ++taker) {
      for (const auto& samples : llm[taker]) {
        for (const int64_t row : numbers.rows_of(samples)) {
          const auto only = static_cast<int64_t>(random() % static_cast<uint64_t>(llm_tp));
          for (int64_t copy = 0; copy < llm_tp; ++copy) {
            if (divides_rows && copy != only) continue;
            taken[static_cast<size_t>(first_taker + static_cast<int64_t>(taker) * llm_tp + copy)].push_back(row);
          }
        }
      }
    }
  }

  RowLists of_macro(const std::vector<std::vector<int64_t>>& all, int64_t macro) const {
    RowLists lists(all.size());
    for (size_t rank = 0; rank < all.size(); ++rank) {
      for (const int64_t row : all[rank]) {
        if (numbers.macro_of(row) == macro) lists[rank].push_back(row);
      }
    }
    return lists;
  }
};

/// Runs of the rank and of those that would tell it.
std::vector<RowRun> told(const std::vector<std::vector<int64_t>>& lists, const std::vector<int64_t>& neighbours,
                         int64_t own) {
  std::vector<RowRun> runs;
  add_runs(lists[static_cast<size_t>(own)], own, 0, runs);
  for (const int64_t rank : neighbours) add_runs(lists[static_cast<size_t>(rank)], rank, 0, runs);
  return runs;
}

/// What a rank sends and receives, without whether others do.
OwnRoute without_others(OwnRoute route) {
  route.moves_rows = false;
  return route;
}

TEST(BridgeRoutes, WhatARankPlansFromItsNeighboursAloneIsItsPartOfTheWhole) {
  int64_t num_left_out = 0;
  for (uint64_t seed = 1; seed <= draws(uint64_t{300}); ++seed) {
    std::mt19937_64 random(seed);
    const DrawnBridge drawn(random);
    std::vector<RowRoute> rows, gradients;
    for (int64_t k = 0; k < drawn.numbers.num_macro_batches(); ++k) {
      const RowLists made = drawn.of_macro(drawn.made, k), taken = drawn.of_macro(drawn.taken, k);
      rows.push_back(plan_row_route(made, taken));
      gradients.push_back(plan_row_route(taken, made));
    }
    const auto num_ranks = std::ssize(drawn.ends.makers);
    for (int64_t rank = 0; rank < num_ranks; ++rank) {
      BridgeRoutes routes(drawn.ends, rank);
      routes.begin(drawn.numbers, drawn.llm);
      const std::vector<int64_t> neighbours = routes.neighbours();
      num_left_out += num_ranks - 1 - std::ssize(neighbours);
      if (drawn.divides_rows) routes.take_only(told(drawn.taken, neighbours, rank));
      if (drawn.encoder_cp > 1) routes.make_only(told(drawn.made, neighbours, rank));
      for (int64_t k = 0; k < drawn.numbers.num_macro_batches(); ++k) {
        const auto macro = static_cast<size_t>(k);
        ASSERT_EQ(without_others(routes.rows(k)), without_others(own_part(rows[macro], rank)))
            << "seed " << seed << ", rank " << rank << ", rows of macro batch " << k;
        ASSERT_EQ(without_others(routes.gradients(k)), without_others(own_part(gradients[macro], rank)))
            << "seed " << seed << ", rank " << rank << ", gradients of macro batch " << k;
      }
    }
  }
  EXPECT_GT(num_left_out, 1000) << "all ranks were each other's neighbours";
}

TEST(BridgeRoutes, NeighboursAreEachOthers) {
  for (uint64_t seed = 1; seed <= draws(uint64_t{100}); ++seed) {
    std::mt19937_64 random(seed);
    const DrawnBridge drawn(random);
    std::vector<std::vector<int64_t>> neighbours;
    for (int64_t rank = 0; rank < std::ssize(drawn.ends.makers); ++rank) {
      BridgeRoutes routes(drawn.ends, rank);
      routes.begin(drawn.numbers, drawn.llm);
      neighbours.push_back(routes.neighbours());
    }
    for (size_t rank = 0; rank < neighbours.size(); ++rank) {
      for (const int64_t other : neighbours[rank]) {
        const auto& theirs = neighbours[static_cast<size_t>(other)];
        EXPECT_TRUE(std::binary_search(theirs.begin(), theirs.end(), static_cast<int64_t>(rank))) << "seed " << seed;
      }
    }
  }
}

}  // namespace
}  // namespace weft
