// Rows that are exchanged and transferred, against one rank that holds everything. all_ranks() says on which ranks.
#include <deque>
#include <thread>

#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

#include "tests/support/tensor/spread_tensor.h"
#include "weft/tensor/row_exchange.h"
#include "weft/tensor/row_transfer.h"

namespace weft {
namespace {

class RowExchanges : public OnTensorRanks {};
INSTANTIATE_TEST_SUITE_P(Tensor, RowExchanges, testing::ValuesIn(suite::all_ranks()), suite::name_of_ranks);

using List = std::vector<int64_t>;
constexpr int64_t kWidth = 3;

bool has(const List& list, int64_t row) {
  return std::find(list.begin(), list.end(), row) != list.end();
}

bool any_has(const RowLists& lists, int64_t row) {
  return std::any_of(lists.begin(), lists.end(), [&](const List& list) { return has(list, row); });
}

/// Who holds and who needs what, the same on all ranks.
struct Example {
  int64_t num_rows = 0;
  RowLists held;
  RowLists needed;
  at::Tensor whole;
  at::Tensor weights;  ///< of the loss

  Example(int64_t num_ranks, uint64_t seed) {
    std::mt19937_64 random(seed);
    num_rows = static_cast<int64_t>(random() % 50);
    held = draw(num_ranks, random);
    needed = draw(num_ranks, random);
    whole = random_tensor({num_rows, kWidth}, seed);
    weights = random_tensor({num_rows, kWidth}, seed + 1000);
  }

  /// Runs, as context parallelism has them, or rows here and there; often none, and often several ranks' the same.
  RowLists draw(int64_t num_ranks, std::mt19937_64& random) const {
    RowLists lists(static_cast<size_t>(num_ranks));
    const uint64_t percent = random() % 101;
    const bool has_runs = random() % 2 == 0;
    for (size_t rank = 0; rank < lists.size(); ++rank) {
      if (random() % 5 == 0) continue;
      if (rank > 0 && random() % 3 == 0) {
        lists[rank] = lists[rank - 1];
        continue;
      }
      const auto begin = static_cast<int64_t>(random() % static_cast<uint64_t>(num_rows + 1));
      const auto length = static_cast<int64_t>(random() % static_cast<uint64_t>(num_rows - begin + 1));
      for (int64_t row = 0; row < num_rows; ++row) {
        if (has_runs ? row >= begin && row < begin + length : random() % 100 < percent) lists[rank].push_back(row);
      }
      if (!has_runs) std::shuffle(lists[rank].begin(), lists[rank].end(), random);
    }
    return lists;
  }

  at::Tensor take(const at::Tensor& from, const List& rows) const {
    return from.index_select(0, at::tensor(rows, at::kLong).to(from.device()));
  }
  /// What a rank has of some rows where others are zero.
  at::Tensor expected(const at::Tensor& from, const RowLists& there, const List& rows) const {
    at::Tensor known = from.clone();
    for (int64_t row = 0; row < num_rows; ++row) {
      if (!any_has(there, row)) known.select(0, row).zero_();
    }
    return take(known, rows);
  }
  /// Rows that a rank must be sent: a lower bound.
  static int64_t num_lacking(const RowLists& held, const List& own, const List& needed) {
    return std::count_if(needed.begin(), needed.end(),
                         [&](int64_t row) { return !has(own, row) && any_has(held, row); });
  }
};

TEST_P(RowExchanges, RowsComeAndGradientsGoBackAsOnOneRankWithNoByteTooMany) {
  run([&](World& world) {
    Group& group = world.all();
    const auto rank = static_cast<size_t>(group.rank());
    for (uint64_t seed = 1; seed <= some_of(300); ++seed) {
      const Example example(group.size(), seed);
      const List& held = example.held[rank];
      const List& needed = example.needed[rank];
      const OwnRoute there = plan_own_route(example.held, example.needed, group.rank());
      const OwnRoute back = plan_own_route(example.needed, example.held, group.rank());
      at::Tensor rows = example.take(example.whole, held);
      // Memory in another order now and then.
      if (seed % 3 == 0) rows = rows.t().contiguous().t();
      rows.set_requires_grad(true);

      const Traffic before = group.traffic();
      const at::Tensor got = exchange_rows(rows, group, there, back);
      const Traffic between = group.traffic();
      ASSERT_EQ(got.sizes(), (at::IntArrayRef{std::ssize(needed), kWidth}));
      EXPECT_TRUE(got.equal(example.expected(example.whole, example.held, needed))) << "seed " << seed;
      EXPECT_EQ(between.received - before.received, 8 * kWidth * Example::num_lacking(example.held, held, needed));
      EXPECT_EQ(between.sent - before.sent, 8 * kWidth * row_traffic(there).sent);

      // Of rows that somebody needs. Copies of a row have the same share of the loss.
      (got.sin() * example.take(example.weights, needed)).sum().backward();
      const Traffic after = group.traffic();
      const at::Tensor gradient = example.whole.cos() * example.weights;
      EXPECT_LE(largest_difference(rows.grad(), example.expected(gradient, example.needed, held)), kTolerance)
          << "seed " << seed;
      EXPECT_EQ(after.received - between.received, 8 * kWidth * Example::num_lacking(example.needed, needed, held));
      EXPECT_EQ(after.sent - between.sent, 8 * kWidth * row_traffic(back).sent);
    }
  });
}

TEST_P(RowExchanges, AGradientOfEveryUseIsThatOfOneRank) {
  run([&](World& world) {
    // Each row is made by one rank and used by one, as between a context-parallel encoder and a language model.
    Group& group = world.all();
    const auto rank = static_cast<size_t>(group.rank());
    const auto size = static_cast<size_t>(group.size());
    for (uint64_t seed = 1; seed <= some_of(50); ++seed) {
      std::mt19937_64 random(seed);
      const auto num_rows = static_cast<int64_t>(random() % 30);
      RowLists made(size), needed(size);
      for (int64_t row = 0; row < num_rows; ++row) {
        made[static_cast<size_t>(row) * size / static_cast<size_t>(num_rows)].push_back(row);
        needed[random() % size].push_back(row);
      }
      const at::Tensor inputs = random_tensor({num_rows, kWidth}, seed), head = random_tensor({kWidth, 2}, seed + 1);
      at::Tensor reference = random_tensor({kWidth, kWidth}, seed + 2).set_requires_grad(true);
      at::Tensor weights = reference.detach().clone().set_requires_grad(true);
      inputs.mm(reference).tanh().mm(head).sin().sum().backward();

      const auto index = [&](const List& rows) { return at::tensor(rows, at::kLong).to(test_device()); };
      const at::Tensor encoded = inputs.index_select(0, index(made[rank])).mm(weights).tanh();
      const at::Tensor here = exchange_rows(encoded, group, plan_own_route(made, needed, group.rank()),
                                            plan_own_route(needed, made, group.rank()));
      here.mm(head).sin().sum().backward();
      at::Tensor sum = weights.grad().contiguous();
      group.all_reduce(buffer_of(sum), Reduction::kSum).wait();
      EXPECT_LE(largest_difference(sum, reference.grad()), 10 * kTolerance) << "seed " << seed;
    }
  });
}

TEST_P(RowExchanges, RowsThatAllStayAreNotTouched) {
  run([&](World& world) {
    Group& group = world.all();
    RowLists lists;
    for (int64_t rank = 0; rank < group.size(); ++rank) lists.push_back({2 * rank, 2 * rank + 1});
    const at::Tensor rows = random_tensor({2, kWidth}, 1);
    const OwnRoute route = plan_own_route(lists, lists, group.rank());
    const Traffic before = group.traffic();
    EXPECT_EQ(exchange_rows(rows, group, route, route).data_ptr(), rows.data_ptr());
    EXPECT_EQ(group.traffic(), before);
  });
}

TEST_P(RowExchanges, TransfersAreUnderWayTogetherAndAreWaitedForInAnyOrder) {
  run([&](World& world) {
    Group& group = world.all();
    const auto rank = static_cast<size_t>(group.rank());
    const at::TensorOptions options = at::TensorOptions().dtype(at::kDouble).device(test_device());
    for (uint64_t round = 0; round < some_of(20); ++round) {
      std::vector<Example> examples;
      for (uint64_t i = 0; i < 6; ++i) examples.emplace_back(group.size(), 100 * round + i);
      std::vector<RowTransfer> transfers;
      std::vector<at::Tensor> rows;
      for (const Example& example : examples) {
        const List& held = example.held[rank];
        // Rows that need a gradient are sent without one.
        rows.push_back(held.empty() ? at::Tensor() : example.take(example.whole, held).set_requires_grad(true));
        const OwnRoute route = plan_own_route(example.held, example.needed, group.rank());
        const Traffic before = group.traffic();
        transfers.push_back(start_rows(group, route, rows.back(), kWidth, options));
        EXPECT_EQ(group.traffic().received - before.received,
                  8 * kWidth * Example::num_lacking(example.held, held, example.needed[rank]));
        if (row_traffic(route) == Traffic{}) {
          EXPECT_TRUE(transfers.back().is_done());
        }
      }
      std::vector<size_t> order(transfers.size());
      std::iota(order.begin(), order.end(), size_t{0});
      std::mt19937_64 random(round * 10 + rank);
      std::shuffle(order.begin(), order.end(), random);
      // What comes is waited for first; what goes may take longer.
      for (const size_t i : order) {
        if (i % 3 == 2) transfers[i].finish();
        const at::Tensor got = transfers[i].wait();
        EXPECT_FALSE(got.requires_grad());
        ASSERT_EQ(got.sizes(), (at::IntArrayRef{std::ssize(examples[i].needed[rank]), kWidth}));
        EXPECT_TRUE(got.equal(examples[i].expected(examples[i].whole, examples[i].held, examples[i].needed[rank])));
      }
      for (RowTransfer& transfer : transfers) {
        transfer.finish();
        EXPECT_TRUE(transfer.is_done());
      }
    }
  });
}

TEST_P(RowExchanges, ATransferThatIsOnlyAskedForComesToItsEnd) {
  run([&](World& world) {
    Group& group = world.all();
    const auto rank = static_cast<size_t>(group.rank());
    const at::TensorOptions options = at::TensorOptions().dtype(at::kDouble).device(test_device());
    for (uint64_t seed = 1; seed <= some_of(20); ++seed) {
      const Example example(group.size(), seed);
      const List& held = example.held[rank];
      RowTransfer transfer;
      EXPECT_TRUE(transfer.is_done());
      transfer = start_rows(group, plan_own_route(example.held, example.needed, group.rank()),
                            held.empty() ? at::Tensor() : example.take(example.whole, held), kWidth, options);
      while (!transfer.is_done()) std::this_thread::yield();
      EXPECT_TRUE(transfer.wait().equal(example.expected(example.whole, example.held, example.needed[rank])));
    }
  });
}

TEST_P(RowExchanges, WrongRowsAreTold) {
  run([&](World& world) {
    Group& group = world.all();
    RowLists held(static_cast<size_t>(group.size()), {0, 1});
    const OwnRoute route = plan_own_route(held, held, group.rank()), shorter = plan_own_route({{0}}, {{0}}, 0);
    const at::Tensor good = random_tensor({2, kWidth}, 1);
    const at::TensorOptions options = at::TensorOptions().dtype(at::kDouble).device(test_device());
    EXPECT_THROW((void)start_rows(group, route, good.narrow(0, 0, 1), kWidth, options), TensorMisuse);
    EXPECT_THROW((void)start_rows(group, route, at::Tensor(), kWidth, options), TensorMisuse);
    EXPECT_THROW((void)start_rows(group, route, good.to(at::kFloat), kWidth, options), TensorMisuse);
    EXPECT_THROW((void)exchange_rows(good, group, route, shorter), InternalError);
    EXPECT_THROW((void)exchange_rows(at::Tensor(), group, route, route), InternalError);
    held.back() = {1, 0};
    EXPECT_THROW((void)exchange_rows(good.narrow(0, 0, 1), group,
                                     plan_own_route(RowLists(held.size(), {0, 1}), held, group.rank()),
                                     plan_own_route(held, RowLists(held.size(), {0, 1}), group.rank())),
                 TensorMisuse);
  });
}

}  // namespace
}  // namespace weft
