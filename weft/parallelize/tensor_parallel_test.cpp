#include "weft/parallelize/tensor_parallel.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "weft/comm/run_ranks.h"

namespace weft {
namespace {

TensorParallel make_pair(World& world, bool divides_rows) {
  const Mesh mesh = *Mesh::contiguous({{"tp", 2}});
  return TensorParallel(*MeshGroups::create(world, mesh), divides_rows);
}

/// Calls with both ranks of a tensor-parallel pair.
void with_pair(bool divides_rows, const std::function<void(World&, TensorParallel&)>& work) {
  const auto error = run_ranks({.size = 2}, [&](World& world) {
    TensorParallel pair = make_pair(world, divides_rows);
    work(world, pair);
  });
  EXPECT_FALSE(error) << error->message();
}

TEST(TensorParallel, GatheredRowsAreWholeAndTheirGradientIsNotCountedTwice) {
  with_pair(true, [](World& world, TensorParallel& pair) {
    for (const int64_t rows : {0, 1, 2, 7}) {
      const ActivationSites sites = pair.sites(rows);
      ASSERT_TRUE(sites.divides_rows);
      EXPECT_EQ(sites.num_rows, pair.local_rows(rows));
      const at::Tensor whole = at::arange(rows * 3, at::kDouble).view({rows, 3});
      const at::Tensor own = whole.narrow(0, sites.first_row, sites.num_rows).clone().set_requires_grad(true);
      const at::Tensor gathered = sites.gather(own);
      EXPECT_TRUE(gathered.equal(whole)) << rows << " rows on rank " << world.rank();
      (gathered * whole).sum().backward();
      EXPECT_TRUE(own.grad().equal(own.detach())) << rows << " rows on rank " << world.rank();
    }
  });
}

TEST(TensorParallel, EnteredRowsAddUpWhatBothRanksDoWithThem) {
  with_pair(true, [](World& world, TensorParallel& pair) {
    const ActivationSites sites = pair.sites(5);
    const at::Tensor own = at::ones({sites.num_rows, 2}, at::kDouble).set_requires_grad(true);
    (sites.enter(own) * static_cast<double>(world.rank() + 1)).sum().backward();
    EXPECT_TRUE(own.grad().equal(at::full_like(own, 3)));
  });
}

TEST(TensorParallel, PartsThatAreSentToAnotherStageAreJoinedThere) {
  for (const bool divides_rows : {false, true}) {
    with_pair(divides_rows, [&](World& world, TensorParallel& pair) {
      for (const int64_t rows : {0, 1, 2, 7}) {
        const at::Tensor whole = at::arange(rows * 3, at::kDouble).view({rows, 3});
        const Range own = pair.rows_between(rows), sent = pair.rows_sent(rows);
        EXPECT_EQ(sent.size(), world.rank() == 0 ? (rows + 1) / 2 : rows / 2);
        const at::Tensor x = whole.narrow(0, own.begin, own.size());
        const at::Tensor part = x.narrow(0, sent.begin, sent.size()).clone();
        EXPECT_TRUE(pair.join(part, rows).equal(x)) << rows << " rows on rank " << world.rank();
        EXPECT_EQ(pair.joins_rows(), !divides_rows);
      }
    });
  }
}

TEST(TensorParallel, RemembersOnlyTheLastShapes) {
  with_pair(true, [](World&, TensorParallel& pair) {
    for (const int64_t round : {0, 1}) {
      for (int64_t rows = 1; rows <= 3 * static_cast<int64_t>(TensorParallel::kMostKnown); ++rows) {
        const ActivationSites sites = pair.sites(rows);
        const at::Tensor own = at::full({sites.num_rows, 2}, static_cast<double>(rows + round), at::kDouble);
        ASSERT_TRUE(sites.enter(own).equal(at::full({rows, 2}, static_cast<double>(rows + round), at::kDouble)));
        ASSERT_LE(pair.num_known(), TensorParallel::kMostKnown);
      }
    }
    EXPECT_EQ(pair.num_known(), TensorParallel::kMostKnown);
  });
}

}  // namespace
}  // namespace weft
