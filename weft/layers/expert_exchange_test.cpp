#include "weft/layers/expert_exchange.h"

#include <numeric>
#include <random>

#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/full.h>
#include <ATen/ops/stack.h>
#include <gtest/gtest.h>

#include "weft/comm/run_ranks.h"

namespace weft {
namespace {

constexpr int64_t kWidth = 3;

/// A row that says where it is from, where it goes, and which it is.
at::Tensor labelled_rows(int64_t rank, const std::vector<int64_t>& counts) {
  std::vector<at::Tensor> rows;
  for (size_t expert = 0; expert < counts.size(); ++expert) {
    for (int64_t i = 0; i < counts[expert]; ++i) {
      at::Tensor row = at::full({kWidth}, 0, at::kDouble);
      row[0] = static_cast<double>(rank);
      row[1] = static_cast<double>(expert);
      row[2] = static_cast<double>(i);
      rows.push_back(row);
    }
  }
  return rows.empty() ? at::full({0, kWidth}, 0, at::kDouble) : at::stack(rows);
}

TEST(ExpertExchange, EveryRowComesToItsExpertAndBack) {
  std::mt19937_64 random(3);
  for (const int64_t num_ranks : {1, 2, 3, 4}) {
    for (int round = 0; round < 6; ++round) {
      const int64_t here = 1 + static_cast<int64_t>(random() % 3);
      std::vector<std::vector<int64_t>> counts(static_cast<size_t>(num_ranks));
      for (auto& own : counts) {
        own.resize(static_cast<size_t>(num_ranks * here));
        // The last rounds: all rows to one expert, and none at all on some ranks.
        for (int64_t& count : own) count = round < 4 ? static_cast<int64_t>(random() % 5) : 0;
        if (round == 4) own[1 % own.size()] = 7;
      }
      if (round == 5) counts.front().back() = 4;
      const auto error = run_ranks({.size = num_ranks}, [&](World& world) {
        Group& all = world.all();
        const auto rank = static_cast<size_t>(all.rank());
        const int64_t before = all.traffic().sent;
        const at::Tensor rows = labelled_rows(all.rank(), counts[rank]).set_requires_grad(true);
        const ExpertExchange exchange = plan_exchange(all, counts[rank], at::kCPU);
        const at::Tensor arrived = dispatch(rows, exchange);
        // By expert, then by the rank that they are from, in their order.
        int64_t at = 0;
        for (int64_t expert = 0; expert < here; ++expert) {
          const auto global = static_cast<int64_t>(rank) * here + expert;
          int64_t total = 0;
          for (int64_t from = 0; from < num_ranks; ++from) {
            const int64_t count = counts[static_cast<size_t>(from)][static_cast<size_t>(global)];
            total += count;
            for (int64_t i = 0; i < count; ++i, ++at) {
              EXPECT_EQ(arrived[at][0].item<double>(), static_cast<double>(from));
              EXPECT_EQ(arrived[at][1].item<double>(), static_cast<double>(global));
              EXPECT_EQ(arrived[at][2].item<double>(), static_cast<double>(i));
            }
          }
          EXPECT_EQ(exchange.counts[static_cast<size_t>(expert)], total);
        }
        EXPECT_EQ(arrived.size(0), at);
        const at::Tensor back = combine(arrived * static_cast<double>(rank + 2), exchange);
        ASSERT_EQ(back.sizes(), rows.sizes());
        int64_t sent_away = 0;
        for (int64_t row = 0; row < rows.size(0); ++row) {
          const auto owner = static_cast<int64_t>(rows[row][1].item<double>()) / here;
          sent_away += owner == all.rank() ? 0 : 1;
          EXPECT_TRUE(back[row].equal(rows[row] * static_cast<double>(owner + 2)));
        }
        // Rows that leave this rank, rows of others that go back from it, and the numbers of both.
        const int64_t guests =
            std::accumulate(exchange.received.begin(), exchange.received.end(), int64_t{0}) - exchange.received[rank];
        EXPECT_EQ(all.traffic().sent - before, (sent_away + guests) * kWidth * 8 + (num_ranks - 1) * here * 8);
        back.sum().backward();
        for (int64_t row = 0; row < rows.size(0); ++row) {
          const auto owner = static_cast<int64_t>(rows[row][1].item<double>()) / here;
          EXPECT_EQ(rows.grad()[row][0].item<double>(), static_cast<double>(owner + 2));
        }
      });
      EXPECT_FALSE(error);
    }
  }
}

}  // namespace
}  // namespace weft
