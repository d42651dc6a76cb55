#include "weft/pipeline/encoder_bridge.h"

#include <mutex>

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <gtest/gtest.h>

#include "weft/comm/run_ranks.h"

namespace weft {
namespace {

constexpr int64_t kWidth = 3;

/// A row and its gradient, recognizable by the row's number.
at::Tensor rows_from(int64_t first, int64_t count, double factor = 1) {
  return at::arange(first, first + count, at::kDouble).unsqueeze(1).expand({count, kWidth}).contiguous() * factor;
}

/// Two ranks make rows, two others take them in, as the tokens of a microbatch are divided between them. Three
/// microbatches of two samples, macro batches of two samples a rank.
struct Setting {
  BatchAssignment::Shares shares = {{{0, 1}, {4, 5}}, {{2, 3}, {}}};
  std::vector<MediaRowCounts> samples = {{.image = 2}, {.image = 3}, {}, {.image = 4}, {.image = 1}, {.image = 2}};
  RowNumbers numbers{ModuleKind::kVision, shares, samples};
  BatchAssignment::Shares llm = {{{0, 1}, {2, 3}, {4, 5}}};
  /// The rows of microbatch m that go to the taker: the even or the odd ones.
  std::vector<std::vector<int64_t>> needed(int64_t taker) const {
    std::vector<std::vector<int64_t>> all;
    for (int64_t m = 0; m < 3; ++m) {
      std::vector<int64_t>& rows = all.emplace_back();
      for (const int64_t row : numbers.rows_of(std::vector<int64_t>{2 * m, 2 * m + 1})) {
        if (row % 2 == taker) rows.push_back(row);
      }
    }
    return all;
  }
};

TEST(EncoderBridge, MovesEveryRowOnceAndItsGradientBack) {
  const Setting setting;
  std::mutex guard;
  int64_t row_bytes = 0, gradient_bytes = 0;
  const auto error = run_ranks({.size = 4, .comm = {.is_checked = true}}, [&](World& world) {
    Group rows = *world.group("rows", {0, 1, 2, 3});
    Group gradients = *world.group("gradients", {0, 1, 2, 3});
    EncoderBridge bridge({.rows = rows,
                          .gradients = gradients,
                          .ends = {.makers = {0, 1, -1, -1}, .takers = {-1, -1, 0, 0}},
                          .shares_taken = true,
                          .width = kWidth,
                          .options = at::TensorOptions().dtype(at::kDouble)});
    const int64_t me = world.rank();
    for (int step = 0; step < 2; ++step) {
      const bool makes = me < 2;
      const auto needed = makes ? std::vector<std::vector<int64_t>>() : setting.needed(me - 2);
      const int64_t told_bytes = rows.traffic().sent;
      bridge.begin(setting.numbers, setting.llm, needed, /*made=*/{}, /*has_gradients=*/true);
      const int64_t bytes_before = rows.traffic().sent;
      EXPECT_GT(bytes_before, told_bytes);
      if (makes) {
        for (int64_t k = 0; k < 2; ++k) {
          const Range made = setting.numbers.rows(k, me);
          bridge.send_rows(k, rows_from(made.begin, made.size()));
        }
        for (int64_t k = 0; k < 2; ++k) {
          const Range made = setting.numbers.rows(k, me);
          bridge.receive_gradients(k);
          EXPECT_TRUE(bridge.take_gradient(k).equal(rows_from(made.begin, made.size(), 10)));
        }
      } else {
        // Gradients of the second microbatch come first: the first macro batch waits for both.
        std::vector<at::Tensor> taken;
        for (int64_t k = 0; k < 2; ++k) bridge.receive_rows(k);
        for (int64_t m = 0; m < 3; ++m) {
          taken.push_back(bridge.take_rows(m));
          const auto& numbers = needed[static_cast<size_t>(m)];
          ASSERT_EQ(taken.back().size(0), std::ssize(numbers));
          for (size_t i = 0; i < numbers.size(); ++i)
            EXPECT_EQ(taken.back()[static_cast<int64_t>(i)][0].item<double>(), static_cast<double>(numbers[i]));
        }
        for (const int64_t m : {1, 0, 2}) bridge.give_gradient(m, taken[static_cast<size_t>(m)] * 10);
        for (int64_t k = 0; k < 2; ++k) bridge.send_gradients(k);
      }
      bridge.end();
      const std::lock_guard lock(guard);
      row_bytes += rows.traffic().sent - bytes_before;
      if (step == 1) gradient_bytes += gradients.traffic().sent;
    }
  });
  EXPECT_FALSE(error);
  const int64_t all_rows = 12;
  EXPECT_EQ(row_bytes, 2 * all_rows * kWidth * 8);
  EXPECT_EQ(gradient_bytes, 2 * all_rows * kWidth * 8);
}

}  // namespace
}  // namespace weft
